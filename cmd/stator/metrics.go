package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/stator-ai/stator/internal/collect"
)

func metricsCommand() *cobra.Command {
	f := metricsFlags{queries: make(queryFlags)}
	d := collect.DefaultConfig()
	cmd := &cobra.Command{
		Use:   "metrics",
		Short: "Collect KV efficiency, latencies and throughput from Prometheus",
		Long: `Ask a Prometheus server that scrapes a fleet how it is doing, and print what it says:
which part of the prompts was cached, how long answers take, what is under way, and a
score that sums up.

Numbers are of the whole fleet, or of a model or an instance. Rates and quantiles look
back over --range. What has no number now, because nothing happened, is asked for over
the window of --lookback; with --start that window is asked for at once. Zero is a
number. Where a server does not publish what a field is called after, others are asked,
and named beside the number: sglang_running_requests is of vLLM where that is what
runs, and what Stator knows of its engines where these are not scraped. What is missing
is listed with the likely reason.

The KV efficiency comes from the first of these that has one: kve (the counters
dynamo_component_thompson_kve_…, or stator_kve_… for a model), dynamo_frontend (cached
tokens by input tokens), vllm, sglang, sglang_fallback (its gauge of the latest batch),
llamacpp.

The score is kv·efficiency + ttft·min(1, target/p95) + itl·min(1, target/p95), with the
weights of --score-weights.

--compat nat asks and reads as NeMo Agent Toolkit does: the first series only, zero as
no number, and the mean of all others in the window instead.

--config reads its settings, prometheus_url and its like, from the top of a YAML file,
or from dynamo_metrics, profiler.dynamo_metrics or eval.general.profiler.dynamo_metrics
in it. There queries, model, instance, compat, score_weights and score_targets are
settings as well. Flags win.

A user and a password for Prometheus come from its URL, or from STATOR_PROMETHEUS_USER
and STATOR_PROMETHEUS_PASSWORD. The exit code is 1 if nothing could be collected, and 2
for a command line that cannot be meant.`,
		Example: `  stator metrics
  stator metrics --prometheus https://prometheus:9090 --ca-file ca.pem --model Qwen/Qwen3-8B
  stator metrics --watch 5s
  stator metrics --start 2026-03-01T10:00:00Z --end 2026-03-01T10:20:00Z --json
  stator metrics --query 'errors=sum(rate(dynamo_frontend_requests_total{status="error"}[{range}]))'`,
		Args: atMost(0),
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.url, "prometheus", d.PrometheusURL, "base `URL` of Prometheus (STATOR_PROMETHEUS_URL)")
	fs.StringVar(&f.within, "range", d.QueryRange, "`TIME` that rates and quantiles look back")
	fs.StringVar(&f.lookback, "lookback", "10m", "`TIME` before now that is asked for what has no number now")
	fs.StringVar(&f.start, "start", "", "beginning of a `TIME` to collect instead of now, as 2026-03-01T10:00:00Z or in seconds since 1970")
	fs.StringVar(&f.end, "end", "", "end of that `TIME`; now by default")
	fs.BoolVar(&f.core, "core", false, "collect only what the score needs")
	fs.StringVar(&f.model, "model", "", "collect for one `MODEL`")
	fs.StringVar(&f.instance, "instance", "", "collect for one scraped `HOST:PORT`")
	fs.Var(f.queries, "query", "a further query, `NAME=PROMQL`, in which {range} is replaced; repeat for more")
	fs.Var(&numberFlags{names: []string{"kv", "ttft", "itl"}, to: &f.weights}, "score-weights", "`WEIGHTS` of the score (default kv=0.4,ttft=0.4,itl=0.2)")
	fs.Var(&numberFlags{names: []string{"ttft", "itl"}, to: &f.targets}, "score-targets", "`SECONDS` that have the full score (default ttft=0.5,itl=0.05)")
	fs.BoolVar(&f.json, "json", false, "print one JSON document; with --watch, one in a line")
	fs.DurationVar(&f.watch, "watch", 0, "collect again every `TIME` until interrupted")
	fs.StringVar(&f.compat, "compat", "none", "whose ways to follow, `NAME`: nat or none")
	fs.StringVar(&f.config, "config", "", "YAML `FILE` with settings")
	fs.StringVar(&f.tokenFile, "bearer-token-file", "", "`FILE` with a bearer token for Prometheus")
	fs.StringVar(&f.caFile, "ca-file", "", "PEM `FILE` with certificates to check Prometheus' with")
	fs.BoolVar(&f.insecure, "insecure", false, "do not check Prometheus' certificate")
	fs.DurationVar(&f.timeout, "timeout", 30*time.Second, "`TIME` that one query may take")
	complete(cmd, "compat", string(collect.NAT), "none")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		stdout, stderr := cmd.OutOrStdout(), cmd.ErrOrStderr()
		f.given = fs.Changed
		cfg, err := f.resolve(os.Getenv)
		if err != nil {
			return err
		}
		client, err := f.client(&cfg, os.Getenv)
		if err != nil {
			return err
		}
		for _, text := range cfg.Advice() {
			fmt.Fprintf(stderr, "warning: %s\n", text)
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		run := func(now time.Time) *collect.Results { return collectMetrics(ctx, now, client, &cfg) }
		if f.watch > 0 {
			return watchMetrics(ctx, f.watch, run, metricsView(stdout, f.json))
		}
		r := run(time.Now())
		if ctx.Err() != nil {
			return fmt.Errorf("interrupted: %w", context.Cause(ctx))
		}
		return printMetrics(stdout, r, f.json)
	}
	return cmd
}

// metricsFlags is what the command line says about a collection.
type metricsFlags struct {
	url, within, lookback, start, end string
	core, json, insecure              bool
	model, instance, compat           string
	queries                           queryFlags
	weights, targets                  map[string]float64
	watch, timeout                    time.Duration
	config, tokenFile, caFile         string
	given                             func(name string) bool
}

// resolve returns the settings: those of the file, then the environment, then the flags.
func (f *metricsFlags) resolve(getenv func(string) string) (collect.Config, error) {
	cfg := collect.DefaultConfig()
	usage := func(format string, args ...any) (collect.Config, error) {
		return cfg, &usageError{err: fmt.Errorf(format, args...), hint: true}
	}
	if f.config != "" {
		var err error
		if cfg, err = readMetricsFile(f.config); err != nil {
			return cfg, fmt.Errorf("--config: %w", err)
		}
	}
	urlFrom := "--prometheus"
	switch env := getenv("STATOR_PROMETHEUS_URL"); {
	case f.given("prometheus"):
		cfg.PrometheusURL = f.url
	case env != "":
		cfg.PrometheusURL, urlFrom = env, "STATOR_PROMETHEUS_URL"
	}
	if f.given("range") {
		if _, err := collect.ParseDuration(f.within); err != nil {
			return usage("--range: %w", err)
		}
		cfg.QueryRange = f.within
	}
	if f.given("lookback") {
		if f.given("start") {
			return usage("--lookback: expected only without --start")
		}
		d, err := collect.ParseDuration(f.lookback)
		if err != nil {
			return usage("--lookback: %w", err)
		}
		cfg.Lookback, cfg.Start, cfg.End = d, time.Time{}, time.Time{}
	}
	if f.given("start") {
		cfg.End = time.Time{} // that of the file is not of this start
	}
	for _, t := range []struct {
		flag, text string
		to         *time.Time
	}{{"start", f.start, &cfg.Start}, {"end", f.end, &cfg.End}} {
		if !f.given(t.flag) {
			continue
		}
		at, err := parseTime(t.text)
		if err != nil {
			return usage("--%s: %w", t.flag, err)
		}
		*t.to = at
	}
	switch {
	case f.given("end") && cfg.Start.IsZero():
		return usage("--end: expected only with --start")
	case f.given("end") && cfg.End.Before(cfg.Start):
		return usage("--end: expected a time after --start, got %s", f.end)
	case f.given("start") && cfg.Start.After(time.Now()):
		return usage("--start: expected a time that has been, got %s", f.start)
	}
	if f.core {
		cfg.CoreOnly()
	}
	if f.given("model") {
		cfg.Model = f.model
	}
	if f.given("instance") {
		cfg.Instance = f.instance
	}
	if f.given("compat") {
		cfg.Compat = collect.Compat(orNone(f.compat))
		if cfg.Compat != "" && cfg.Compat != collect.NAT {
			return usage("--compat: expected nat or none, got %q", f.compat)
		}
	}
	if cfg.Compat == collect.NAT && (cfg.Model != "" || cfg.Instance != "") {
		return usage("--compat nat takes all models and instances together: expected no --model and no --instance")
	}
	for name, promql := range f.queries {
		if cfg.Queries == nil {
			cfg.Queries = make(map[string]string)
		}
		cfg.Queries[name] = promql
	}
	for name, to := range map[string]*float64{"kv": &cfg.Weights.KV, "ttft": &cfg.Weights.TTFT, "itl": &cfg.Weights.ITL} {
		if v, ok := f.weights[name]; ok {
			*to = v
		}
	}
	for name, to := range map[string]*float64{"ttft": &cfg.Targets.TTFT, "itl": &cfg.Targets.ITL} {
		if v, ok := f.targets[name]; ok {
			*to = v
		}
	}
	switch {
	case f.given("watch") && f.watch < time.Second:
		return usage("--watch: expected a time of at least 1s, got %s", formatDuration(f.watch))
	case f.given("watch") && !cfg.End.IsZero():
		return usage("--watch: expected only without --end")
	case f.timeout <= 0:
		return usage("--timeout: expected a time above 0, got %s", formatDuration(f.timeout))
	}
	if err := cfg.Validate(); err != nil {
		// The file was valid.
		return usage("%s", flagNames(urlFrom).Replace(err.Error()))
	}
	return cfg, nil
}

// flagNames calls settings what the command line calls them.
func flagNames(urlFrom string) *strings.Replacer {
	return strings.NewReplacer(
		"prometheus_url: ", urlFrom+": ", "queries: ", "--query: ",
		"score_weights: ", "--score-weights: ", "score_targets: ", "--score-targets: ", "\n", "; ",
	)
}

// client returns the way to Prometheus.
func (f *metricsFlags) client(cfg *collect.Config, getenv func(string) string) (*collect.Client, error) {
	o := collect.Options{
		URL: cfg.PrometheusURL, User: getenv("STATOR_PROMETHEUS_USER"), Password: getenv("STATOR_PROMETHEUS_PASSWORD"),
		TokenFile: f.tokenFile, Insecure: f.insecure, Timeout: f.timeout,
	}
	if f.caFile != "" {
		var err error
		if o.CA, err = os.ReadFile(f.caFile); err != nil {
			return nil, fmt.Errorf("--ca-file: %w", err)
		}
	}
	if f.tokenFile != "" {
		if _, err := os.ReadFile(f.tokenFile); err != nil {
			return nil, fmt.Errorf("--bearer-token-file: %w", err)
		}
	}
	client, err := collect.NewClient(o)
	if err != nil {
		return nil, &usageError{err: fmt.Errorf("prometheus: %w", err), hint: true}
	}
	return client, nil
}

// collectMetrics collects once, and finds out how the servers are beside it.
func collectMetrics(ctx context.Context, now time.Time, client *collect.Client, cfg *collect.Config) *collect.Results {
	health := make(chan collect.Health, 1)
	go func() { health <- client.Health(ctx, cfg.Compat) }()
	r := collect.Metrics(ctx, now, client, cfg)
	h := <-health
	r.Health = &h
	return r
}

// errNothing is for results without a number; why is in them.
var errNothing = errors.New("nothing could be collected")

func printMetrics(w io.Writer, r *collect.Results, asJSON bool) error {
	var err error
	if asJSON {
		err = r.WriteJSON(w)
	} else {
		err = r.WriteText(w, collect.Look{Color: useColor("auto", isTerminal(w), os.Getenv)})
	}
	if err == nil && r.Collected() == 0 {
		err = errNothing
	}
	return err
}

// parseTime reads a time as RFC 3339 has it, or in seconds since 1970.
func parseTime(text string) (time.Time, error) {
	if s, err := strconv.ParseFloat(text, 64); err == nil && s >= 0 && s < 1<<33 {
		return time.UnixMicro(int64(math.Round(s * 1e6))).UTC(), nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return t, fmt.Errorf("expected a time such as 2026-03-01T10:00:00Z, or seconds since 1970, got %q", text)
	}
	return t, nil
}

// queryFlags is the value of a flag that names queries.
type queryFlags map[string]string

func (q queryFlags) String() string { return "" }

// Type is shown nowhere, because the usage text names the value.
func (q queryFlags) Type() string { return "query" }

// Set takes NAME=PROMQL.
func (q queryFlags) Set(text string) error {
	name, promql, ok := strings.Cut(text, "=")
	if !ok || name == "" || strings.TrimSpace(promql) == "" || strings.ContainsAny(name, "{( ") {
		return errors.New("expected NAME=PROMQL")
	}
	q[name] = promql
	return nil
}

// numberFlags is the value of a flag that gives numbers to some names: kv=0.5,itl=0.1.
type numberFlags struct {
	names []string
	to    *map[string]float64
}

func (n *numberFlags) String() string { return "" }

// Type is shown nowhere, because the usage text names the value.
func (n *numberFlags) Type() string { return "numbers" }

// Set takes NAME=NUMBER, and more after commas.
func (n *numberFlags) Set(text string) error {
	out := make(map[string]float64)
	for part := range strings.SplitSeq(text, ",") {
		name, number, _ := strings.Cut(part, "=")
		v, err := strconv.ParseFloat(number, 64)
		if err != nil || !slices.Contains(n.names, name) {
			return fmt.Errorf("expected %s=NUMBER, got %q", strings.Join(n.names, "=NUMBER,"), part)
		}
		out[name] = v
	}
	*n.to = out
	return nil
}
