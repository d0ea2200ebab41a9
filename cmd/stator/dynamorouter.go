package main

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/stator-ai/stator/internal/router"
)

// routerSetting is a setting of the router that NVIDIA Dynamo has as well, as a flag
// and as a variable of the environment.
type routerSetting struct {
	flag, variable string // either may be empty
	key            string
	usage          string // of the flag; without one, help does not show it
	// parse reads the text where it does not stand for a value of the setting; nil
	// means that it does.
	parse func(text string) (any, error)
}

// routerSettings has what is more general before what is less, which wins.
var routerSettings = []routerSetting{
	{"router-kv-overlap-score-weight", "DYN_ROUTER_KV_OVERLAP_SCORE_WEIGHT", "router.cost.prefill_load_scale", "", parseOverlapWeight},
	{"router-kv-overlap-score-credit", "DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT", "router.cost.overlap_score_credit", "", nil},
	{"router-kv-overlap-score-credit-decay", "DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT_DECAY", "router.cost.overlap_score_credit_decay", "", nil},
	{"router-prefill-load-scale", "DYN_ROUTER_PREFILL_LOAD_SCALE", "router.cost.prefill_load_scale", "", nil},
	{"router-decode-active-request-weight", "DYN_ROUTER_DECODE_ACTIVE_REQUEST_WEIGHT", "router.cost.decode_active_request_weight", "", nil},
	{"router-host-cache-hit-weight", "DYN_ROUTER_HOST_CACHE_HIT_WEIGHT", "router.cost.host_cache_hit_weight", "", nil},
	{"router-disk-cache-hit-weight", "DYN_ROUTER_DISK_CACHE_HIT_WEIGHT", "router.cost.disk_cache_hit_weight", "", nil},
	{"shared-cache-multiplier", "DYN_SHARED_CACHE_MULTIPLIER", "router.cost.shared_cache_multiplier", "", nil},
	{"router-temperature", "DYN_ROUTER_TEMPERATURE", "router.cost.temperature",
		"`NUMBER` above 0 to take other ranks than the best now and then, the higher the more often", nil},
	{"router-kv-events", "DYN_ROUTER_USE_KV_EVENTS", "router.kv.events",
		"go by the KV events of engines; with --no-router-kv-events, by what was placed where", nil},
	{"router-ttl-secs", "DYN_ROUTER_TTL_SECS", "router.kv.ttl", "", parseFractionalSeconds},
	{"router-max-tree-size", "DYN_ROUTER_MAX_TREE_SIZE", "router.kv.max_blocks", "", nil},
	{"router-prune-target-ratio", "DYN_ROUTER_PRUNE_TARGET_RATIO", "router.kv.prune_target_ratio", "", nil},
	{"router-assume-kv-reuse", "DYN_ROUTER_ASSUME_KV_REUSE", "router.kv.assume_reuse", "", nil},
	{"router-track-active-blocks", "DYN_ROUTER_TRACK_ACTIVE_BLOCKS", "router.kv.track_active_blocks", "", nil},
	{"router-track-output-blocks", "DYN_ROUTER_TRACK_OUTPUT_BLOCKS", "router.kv.track_output_blocks", "", nil},
	{"router-track-prefill-tokens", "DYN_ROUTER_TRACK_PREFILL_TOKENS", "router.kv.track_prefill_tokens", "", nil},
	{"router-queue-threshold", "DYN_ROUTER_QUEUE_THRESHOLD", "router.queue.threshold",
		"requests wait while every rank has more than this `FACTOR` of max_num_batched_tokens to compute; None for no queue", nil},
	{"router-queue-policy", "DYN_ROUTER_QUEUE_POLICY", "router.queue.policy",
		"order in which waiting requests go, `POLICY`: fcfs, lcfs or wspt", nil},
	{"router-policy-config", "DYN_ROUTER_POLICY_CONFIG", "router.queue",
		"YAML `FILE` with the classes that requests wait in, in Dynamo's format", parsePolicyFile},
	{"", "DYN_ROUTER_OVERLAP_REFRESH_AFTER_SECS", "router.queue.refresh_after", "", parseFractionalSeconds},
}

// dynamoAliases are other names of flags.
var dynamoAliases = map[string]string{
	"tls-cert-path":           "tls-cert",
	"tls-key-path":            "tls-key",
	"kv-overlap-score-weight": "router-kv-overlap-score-weight",
	"kv-events":               "router-kv-events",
	"no-kv-events":            "no-router-kv-events",
	"assume-kv-reuse":         "router-assume-kv-reuse",
	"no-assume-kv-reuse":      "no-router-assume-kv-reuse",
	"track-active-blocks":     "router-track-active-blocks",
	"no-track-active-blocks":  "no-router-track-active-blocks",
	"track-output-blocks":     "router-track-output-blocks",
	"no-track-output-blocks":  "no-router-track-output-blocks",
}

// addRouter declares the router's flags, those that are refused included.
func (s *settings) addRouter() {
	modes := make([]string, len(router.Modes))
	for i, m := range router.Modes {
		modes[i] = string(m)
	}
	last := len(modes) - 1
	aware := s.addParsed("load-aware", "router.mode", "", parseLoadAware)
	aware.flag.Hidden, aware.flag.NoOptDefVal = true, "true"
	s.add("router-mode", "router.mode", fmt.Sprintf("`MODE`: %s or %s", strings.Join(modes[:last], ", "), modes[last])).
		choices(s.cmd, modes...)
	s.add("router-policy", "router.policy", "`POLICY` of mode kv: cost, or thompson, which learns").
		choices(s.cmd, "cost", "thompson")
	s.add("thompson-variant", "router.thompson.variant", "`VARIANT` of the policy thompson: safe, reference or shadow").
		choices(s.cmd, "safe", "reference", "shadow")
	for _, r := range routerSettings {
		if r.flag == "" {
			continue
		}
		var f *settingFlag
		if r.parse == nil {
			f = s.add(r.flag, r.key, r.usage)
		} else {
			f = s.addParsed(r.flag, r.key, r.usage, r.parse)
		}
		f.flag.Hidden = r.usage == ""
		if settingType(r.key).Kind() == reflect.Bool {
			f.opposite(s.cmd)
		}
		if r.flag == "router-queue-policy" {
			f.choices(s.cmd, "fcfs", "lcfs", "wspt")
		}
	}
	s.refuse("router-durable-kv-events", "false", "events come from the engines themselves, not from a broker that keeps them")
	s.refuse("router-replica-sync", "false", "replicas do not tell each other what they have placed")
	s.refuse("router-reset-states", "false", "") // every start is with nothing
	s.refuse("router-snapshot-threshold", "", "there is no broker to keep snapshots in")
	s.refuse("router-event-threads", "", "the index takes events on all processors")
	s.refuse("router-prefill-load-model", "none", "a prompt counts in full until it has been computed")
	s.refuse("router-predicted-ttl-secs", "", "prompts count as cached while they run, see router.kv.predict_from_inflight")
	s.refuse("shared-cache-type", "none", "no shared cache is asked")
	s.refuse("use-remote-indexer", "false", "the index is in the server")
	s.refuse("serve-indexer", "false", "stator index serves one")
}

// routerVariables returns the variables among the router's settings.
func routerVariables() []dynamoVariable {
	var out []dynamoVariable
	for _, r := range routerSettings {
		v := dynamoVariable{r.variable, r.key, r.parse}
		if v.parse == nil && settingType(r.key).Kind() == reflect.Bool {
			v.parse = parseLooseBool
		}
		out = append(out, v)
	}
	return out
}

// parseOverlapWeight reads the weight of releases that had one for load and caches
// together.
func parseOverlapWeight(text string) (any, error) {
	w, err := parseValue(reflect.TypeFor[float64](), text)
	if err != nil {
		return nil, err
	}
	out := several{{key: "router.cost.prefill_load_scale", value: w}}
	if w == 0.0 {
		out = append(out, assignment{key: "router.cost.overlap_score_credit", value: 0.0})
	}
	return out, nil
}

// parseLoadAware returns what Dynamo means by its flag: kv mode without caches.
func parseLoadAware(text string) (any, error) {
	on, err := parseBool(text)
	if err != nil || !on {
		return several(nil), err
	}
	return several{
		{key: "router.mode", value: "kv"},
		{key: "router.cost.overlap_score_credit", value: 0.0},
		{key: "router.kv.events", value: false},
		{key: "router.kv.assume_reuse", value: false},
		{key: "router.kv.track_active_blocks", value: true},
		{key: "router.kv.track_prefill_tokens", value: true},
	}, nil
}

// parseLooseBool reads a bool as Dynamo writes them in the environment.
func parseLooseBool(text string) (any, error) {
	switch strings.ToLower(text) {
	case "true", "1", "yes", "on":
		return true, nil
	case "false", "0", "no", "off":
		return false, nil
	}
	return nil, fmt.Errorf("expected true or false, got %q", text)
}

func parseFractionalSeconds(text string) (any, error) {
	const most = 1e9 // some 30 years
	s, err := strconv.ParseFloat(text, 64)
	if err != nil || !(s >= 0 && s <= most) {
		return nil, fmt.Errorf("expected a number of seconds, got %q", text)
	}
	return time.Duration(math.Round(s * float64(time.Second))), nil
}

// refusedFlag is the value of a flag of Dynamo's that asks for what there is not.
type refusedFlag struct {
	name, why string
	fine      string // the value that asks for nothing; "false" makes it a bool
	asked     bool
}

// refuse declares such a flag; without a reason it is taken and has no effect. Bools
// have --no-NAME as well.
func (s *settings) refuse(name, fine, why string) {
	f := &refusedFlag{name: name, fine: fine, why: why}
	s.refused = append(s.refused, f)
	s.hide(f)
	if fine == "false" {
		s.hide(&refusedFlag{name: "no-" + name, fine: fine})
	}
}

func (s *settings) hide(f *refusedFlag) {
	flag := s.cmd.Flags().VarPF(f, f.name, "", "")
	flag.Hidden = true
	if f.fine == "false" {
		flag.NoOptDefVal = "true"
	}
}

func (f *refusedFlag) String() string { return "" }

func (f *refusedFlag) Type() string {
	if f.fine == "false" {
		return "bool"
	}
	return "value"
}

func (f *refusedFlag) Set(text string) error {
	if f.fine == "false" {
		if _, err := parseBool(text); err != nil {
			return err
		}
	}
	f.asked = text != f.fine
	return nil
}

// refusal returns an error about the first flag that asked for what there is not.
func (s *settings) refusal() error {
	for _, f := range s.refused {
		if f.asked && f.why != "" {
			return fmt.Errorf("--%s is not supported: %s", f.name, f.why)
		}
	}
	return nil
}
