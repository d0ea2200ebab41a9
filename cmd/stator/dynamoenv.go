package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stator-ai/stator"
)

// dynamoVariable is an environment variable of NVIDIA Dynamo's frontend that has
// a counterpart here.
type dynamoVariable struct {
	name, key string
	// parse reads the text where its unit is not the setting's; nil means the
	// setting's own.
	parse func(text string) (any, error)
}

// dynamoVariables is read with --dynamo-env. Of two names for a key the later
// wins.
var dynamoVariables = slices.Concat([]dynamoVariable{
	{"DYN_HTTP_PORT", "listen", parsePort},
	{"DYN_ROUTER_MODE", "router.mode", nil},
	{"DYN_ACTIVE_DECODE_BLOCKS_THRESHOLD", "router.active_decode_blocks_threshold", nil},
	{"DYN_ACTIVE_PREFILL_TOKENS_THRESHOLD", "router.active_prefill_tokens_threshold", nil},
	{"DYN_ACTIVE_PREFILL_TOKENS_THRESHOLD_FRAC", "router.active_prefill_tokens_threshold_frac", nil},
	{"DYN_HTTP_OVERLOAD_STATUS_CODE", "router.overload_status", nil},
	{"DYN_TLS_CERT_PATH", "tls.cert", nil},
	{"DYN_TLS_KEY_PATH", "tls.key", nil},
	{"DYN_HTTP_BODY_LIMIT_MB", "limits.body_bytes", parseMiB},
	{"DYN_HTTP_BACKEND_STREAM_TIMEOUT_SECS", "limits.engine_idle_timeout", parseSeconds},
	{"DYN_HTTP_GRACEFUL_SHUTDOWN_TIMEOUT_SECS", "drain.timeout", parseSeconds},
	{"DYN_METRICS_PREFIX", "metrics.prefix", nil},
}, routerVariables(), bucketVariables())

// bucketVariables returns the names of the histogram settings: as documented and,
// winning, as Dynamo's code reads them.
func bucketVariables() []dynamoVariable {
	var out []dynamoVariable
	for _, prefix := range []string{"DYN_METRICS_", "DYN_HISTOGRAM_DYN_METRICS_"} {
		for _, histogram := range []string{"request_duration", "input_sequence", "output_sequence", "ttft", "itl"} {
			for _, bound := range []string{"min", "max", "count"} {
				name := prefix + strings.ToUpper(histogram+"_"+bound)
				out = append(out, dynamoVariable{name, "metrics.buckets." + histogram + "." + bound, nil})
			}
		}
	}
	return out
}

// dynamoEnvironment reads environ, a list of NAME=value. ignored are the DYN_*
// variables that have no counterpart.
func dynamoEnvironment(environ []string) (set []assignment, ignored []string, err error) {
	values := make(map[string]string)
	for _, e := range environ {
		if name, value, _ := strings.Cut(e, "="); strings.HasPrefix(name, "DYN_") && value != "" {
			values[name] = value
		}
	}
	var problems []problem
	for _, v := range dynamoVariables {
		text, ok := values[v.name]
		if !ok {
			continue
		}
		delete(values, v.name)
		parse := v.parse
		if parse == nil {
			parse = func(text string) (any, error) { return parseValue(settingType(v.key), text) }
		}
		value, err := parse(text)
		if err != nil {
			problems = append(problems, problem{origin{source: v.name}, stator.Problem{Key: v.key, Reason: err.Error()}})
			continue
		}
		set = append(set, assignment{v.key, value, v.name})
	}
	for name := range values {
		ignored = append(ignored, name)
	}
	slices.Sort(ignored)
	if problems != nil {
		return nil, ignored, &configError{problems}
	}
	return set, ignored, nil
}

func parsePort(text string) (any, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("expected a port from 0 to 65535, got %q", text)
	}
	return port(n), nil
}

func parseMiB(text string) (any, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("expected a whole number of MiB, got %q", text)
	}
	return stator.Size(n << 20), nil
}

func parseSeconds(text string) (any, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("expected a whole number of seconds, got %q", text)
	}
	return time.Duration(n) * time.Second, nil
}
