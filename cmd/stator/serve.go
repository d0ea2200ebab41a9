package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel"

	"github.com/stator-ai/stator"
	"github.com/stator-ai/stator/internal/hub"
	"github.com/stator-ai/stator/internal/simserver"
)

func serveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the OpenAI API in front of engines",
		Long: `Serve the OpenAI API and place each request on one of the engines.

Settings come from the file, then the environment (STATOR_LISTEN,
STATOR_ADMIN_LISTEN, STATOR_API_KEY, STATOR_ENGINE_API_KEY), then flags; the
last one wins. The file knows more settings than there are flags; the router flags
of NVIDIA Dynamo that are not listed here (--router-ttl-secs, …) are understood as
well. Tokenizers are downloaded as HF_TOKEN, HF_HOME and the other variables of
Hugging Face's libraries say.

What an engine is, vLLM, SGLang, TensorRT-LLM, llama.cpp or something else, is found
out by asking it, and so is where it publishes what becomes of its KV cache. The
engines of the file can be changed while the server runs: it looks at the file every
two seconds, and on SIGHUP.

The first SIGINT or SIGTERM lets running requests end, the second does not.`,
		Example: `  stator serve --sim 4
  stator serve --engine http://gpu1:8000 --engine http://gpu2:8000
  stator serve --engine http://gpu1:8000 --tokenizer Qwen/Qwen3-8B
  stator serve --engine http://gpu1:8000,events=gpu1:5557,replay=gpu1:5657
  stator serve --engine dns+http://vllm.default.svc.cluster.local:8000
  stator serve --config stator.yaml --listen 0.0.0.0:8000`,
		Args: atMost(0),
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	s := &settings{cmd: cmd}
	var (
		path       string
		dynamo     bool
		engines    engineURLs
		tokenizers tokenizerRefs
	)
	fs.Var(&engines, "engine", "base `URL[,events=HOST:PORT][,…]` of an engine, with its kind, events, replay and topic after commas; repeat for more; replaces those of the file; dns+http://NAME:PORT for all addresses of a name")
	s.add("register", "discovery.register", "let engines announce themselves with POST /v1/engines")
	fs.Var(&tokenizers, "tokenizer", "where tokens come from, `[MODEL=]REF`: path, Hub repository, qwen3, engine or none; repeat for more models")
	s.add("sim", "sim.engines", "number `N` of simulated engines to run")
	fs.StringVar(&path, "config", "", "YAML `FILE` with settings (STATOR_CONFIG)")
	s.add("listen", "listen", "`HOST:PORT` of the API")
	s.addParsed("http-port", "listen", "`PORT` of the API, on the host it has", parsePort)
	s.add("admin-listen", "admin_listen", "`HOST:PORT` of the admin routes, if not on the API's")
	s.addMetricsPorts()
	s.add("tls-cert", "tls.cert", "`FILE` with the certificate chain, PEM")
	s.add("tls-key", "tls.key", "`FILE` with the private key, PEM")
	s.addRouter()
	s.add("active-decode-blocks-threshold", "router.active_decode_blocks_threshold",
		"a rank is busy above this `SHARE` of its KV blocks; None for no check")
	s.add("active-prefill-tokens-threshold", "router.active_prefill_tokens_threshold",
		"a rank is busy above this number of prompt `TOKENS` waiting; None for no check")
	s.add("active-prefill-tokens-threshold-frac", "router.active_prefill_tokens_threshold_frac",
		"the same as a `FACTOR` of max_num_batched_tokens; None for no check")
	s.add("engine-idle-timeout", "limits.engine_idle_timeout", "`TIME` an engine may send nothing; 0 for ever")
	s.add("error-format", "errors.format", "`FORMAT` of error bodies: openai or dynamo").choices(cmd, "openai", "dynamo")
	s.add("strict", "strict", "check every field of requests, refuse unknown ones")
	s.add("learn-hints", "learn.enabled", "infer hints that clients do not give from the calls before")
	s.add("log-level", "log.level", "`LEVEL`: debug, info, warn or error").choices(cmd, "debug", "info", "warn", "error")
	s.add("log-format", "log.format", "`FORMAT`: text or json").choices(cmd, "text", "json")
	s.add("log-requests", "log.requests", "log a line per finished request")
	s.add("otlp-endpoint", "tracing.otlp_endpoint", "`URL` of an OTLP/HTTP collector for traces")
	s.add("trace-out", "trace.out", "`FILE` that gets a line of JSON per finished request: the decision, its inputs, timings")
	s.add("trace-text", "trace.text", "record the text of prompts there, not only hashes and lengths")
	s.add("drain-timeout", "drain.timeout", "`TIME` running requests may take to end")
	s.add("sim-model", "sim.model", "`NAME` of the simulated model")
	s.add("sim-kind", "sim.kind", "engine that the simulated ones are like, `KIND`: vllm or sglang").choices(cmd, "vllm", "sglang")
	s.add("sim-tokenizer", "sim.tokenizer", "vocabulary of simulated engines, `NAME`: qwen3 or bytes").choices(cmd, "qwen3", "bytes")
	s.add("sim-seed", "sim.seed", "`NUMBER` that changes the simulated text")
	s.add("sim-profile", "sim.profile", "how long simulated engines take, `PROFILE`: linear, polynomial, fixed, instant or a file").
		choices(cmd, "linear", "polynomial", "fixed", "instant")
	s.add("sim-speedup", "sim.speedup", "`FACTOR` by which modelled engines are faster; 0 for no delay")
	s.add("sim-ttft", "sim.ttft", "`TIME` to the first simulated token, with the profile fixed (default 50ms)")
	s.add("sim-itl", "sim.itl", "`TIME` between simulated tokens, with the profile fixed (default 5ms)")
	s.add("sim-block-size", "sim.block_size", "`TOKENS` in a simulated KV block")
	s.add("sim-blocks", "sim.total_kv_blocks", "`NUMBER` of KV blocks of a simulated rank")
	s.add("sim-max-batched-tokens", "sim.max_num_batched_tokens", "`TOKENS` a simulated rank computes in a step")
	s.add("sim-max-seqs", "sim.max_num_seqs", "`NUMBER` of requests a simulated rank computes in a step")
	s.add("sim-ranks", "sim.ranks", "`NUMBER` of data-parallel ranks of a simulated engine")
	s.add("sim-virtual-time", "sim.virtual_time", "simulate by nvext.request_timestamp_ms and POST /sim/drain instead of the wall clock")
	fs.BoolVar(&dynamo, "dynamo-env", false, "also read the DYN_* variables that have a counterpart")
	alias(fs, dynamoAliases)

	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if fs.Changed("listen") && fs.Changed("http-port") {
			return &usageError{err: errors.New("--http-port: expected without --listen"), hint: true}
		}
		if err := s.refusal(); err != nil {
			return &usageError{err: err}
		}
		stderr := cmd.ErrOrStderr()
		src := source{file: path, getenv: os.Getenv, flags: slices.Concat(engines.assignment(), tokenizers.assignment(), s.given())}
		for _, flag := range []string{"sim-ttft", "sim-itl"} {
			if fs.Changed(flag) && !fs.Changed("sim-profile") { // it has no other meaning
				src.flags = append(src.flags, assignment{"sim.profile", string(simserver.Fixed), "--" + flag})
			}
		}
		if src.file == "" {
			src.file = os.Getenv("STATOR_CONFIG")
		}
		if dynamo {
			set, ignored, err := dynamoEnvironment(os.Environ())
			if len(ignored) > 0 {
				fmt.Fprintf(stderr, "warning: no counterpart for %s\n", strings.Join(ignored, ", "))
			}
			if err != nil {
				return err
			}
			src.dynamo = set
		}
		cfg, err := load(src)
		if err != nil {
			return err
		}
		if len(cfg.Engines)+cfg.Sim.Engines == 0 && !cfg.Discovery.Register {
			return &usageError{err: errNoEngines}
		}
		for _, w := range cfg.Warnings() {
			fmt.Fprintln(stderr, "warning:", w)
		}
		if len(cfg.Models) > 0 {
			if err := hubEnvironment(&cfg.Hub, os.Getenv); err != nil {
				return err
			}
		}
		err = serve(cmd.Context(), cfg, src, cmd.OutOrStdout(), stderr)
		if fs.Changed("trace-out") {
			err = traceError(err, cfg.Trace.Out)
		}
		return err
	}
	return cmd
}

var errNoEngines = errors.New(`nothing to serve: name an engine, or simulate some

  stator serve --engine http://127.0.0.1:8001
  stator serve --sim 4`)

// serve runs a server until a signal ends it. Its engines follow the configuration file
// of src.
func serve(ctx context.Context, cfg stator.Config, src source, stdout, stderr io.Writer) error {
	v, _ := buildVersion()
	log := newLogger(stderr, cfg.Log)
	// The trace exporter reports its troubles to one handler per process.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("trace export failed", "error", err) }))
	options := []stator.Option{stator.WithLogger(log), stator.WithVersion(v)}
	bar := func() {}
	if isTerminal(stderr) {
		b := hub.NewBar(stderr)
		bar = b.Close
		options = append(options, stator.WithProgress(b.Update))
	}
	srv, err := stator.New(cfg, options...)
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	started := make(chan error, 1)
	go func() {
		err := srv.Start(ctx)
		bar()
		started <- err
	}()
	select {
	case err := <-started:
		if err != nil {
			return listenError(err, &cfg)
		}
	case <-signals:
		cancel()
		err := errors.New("interrupted while starting")
		if <-started == nil {
			err = errors.Join(err, srv.Close())
		}
		return err
	}
	greet(stdout, &cfg, srv)
	if src.file != "" {
		again := make(chan os.Signal, 1)
		signal.Notify(again, syscall.SIGHUP)
		defer signal.Stop(again)
		follow := &reloader{src: src, cfg: cfg, set: srv.SetEngines, log: log}
		follow.changed() // from here on
		followed := make(chan struct{})
		go func() {
			defer close(followed)
			follow.run(ctx, again)
		}()
		defer func() { cancel(); <-followed }()
	}

	<-signals
	fmt.Fprintf(stderr, "draining for at most %s; interrupt again to stop at once\n", formatDuration(cfg.Drain.Timeout))
	drain, stop := context.WithTimeout(context.WithoutCancel(ctx), cfg.Drain.Timeout)
	defer stop()
	drained := make(chan error, 1)
	go func() { drained <- srv.Drain(drain) }()
	select {
	case err = <-drained:
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("requests were still running after %s", formatDuration(cfg.Drain.Timeout))
		}
		return errors.Join(err, srv.Close())
	case <-signals:
		return errors.Join(errors.New("stopped at once"), srv.Close())
	}
}

// hubEnvironment fills in what h does not say from the variables that Hugging Face's
// libraries know.
func hubEnvironment(h *stator.HubConfig, getenv func(string) string) error {
	env, err := hub.FromEnv(getenv)
	if err != nil {
		return err
	}
	h.Endpoint = cmp.Or(h.Endpoint, env.Endpoint)
	h.Token = cmp.Or(h.Token, env.Token)
	h.CacheDir = cmp.Or(h.CacheDir, env.CacheDir)
	if h.Offline == nil {
		h.Offline = &env.Offline
	}
	return nil
}

// listenError puts the usual reason for which a server does not start in words. A server
// without a configuration has one address.
func listenError(err error, cfg *stator.Config) error {
	var op *net.OpError
	if !errors.Is(err, syscall.EADDRINUSE) || !errors.As(err, &op) || op.Addr == nil {
		return err
	}
	return fmt.Errorf("cannot listen on %s: the address is in use; choose another with %s", op.Addr, listenFlag(op.Addr.String(), cfg))
}

// traceError names the flag in an error about the file it asked for.
func traceError(err error, out string) error {
	var path *os.PathError
	if !errors.As(err, &path) || path.Path != out && path.Path != out+".zst" {
		return err
	}
	return fmt.Errorf("configuration: --trace-out: %w", err)
}

// newLogger returns the log that cfg describes.
func newLogger(w io.Writer, cfg stator.LogConfig) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.Level)); err != nil {
		panic(err) // the configuration is valid
	}
	o := &slog.HandlerOptions{Level: level}
	if cfg.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// greet says where the server is, what it serves and how to try it.
func greet(w io.Writer, cfg *stator.Config, srv *stator.Server) {
	addr, models := srv.Addr(), srv.Models()
	scheme, insecure := "http://", ""
	if cfg.TLS.Cert != "" {
		scheme, insecure = "https://", "-k "
	}
	base := scheme + reachable(addr)
	fmt.Fprintf(w, "listening on %s\n", scheme+addr)
	if cfg.AdminListen != "" {
		fmt.Fprintf(w, "admin routes on %s\n", scheme+srv.AdminAddr())
	}
	greetMetrics(w, cfg.Metrics.Ports)
	found, all := srv.Workers()
	workers := count(all, "worker")
	if found > 0 && found < all {
		workers = fmt.Sprintf("%d of %s", found, workers)
	}
	auth := ""
	if len(cfg.Keys) > 0 {
		auth = `-H "Authorization: Bearer $STATOR_API_KEY" `
	}
	if len(models) == 0 {
		fmt.Fprintf(w, "no model yet; waiting for %s\n", workers)
		fmt.Fprintf(w, "\n  curl %s%s%s/v1/models\n\n", insecure, auth, base)
		return
	}
	fmt.Fprintf(w, "serving %s on %s, router mode %s\n", strings.Join(models, ", "), workers, cfg.Router.Mode)
	if len(cfg.Engines) > 0 {
		engines := srv.Engines()
		greetEngines(w, engines)
		asked := slices.ContainsFunc(engines, func(e stator.EngineInfo) bool {
			return e.Kind == "vllm" || e.Kind == "sglang" || e.Kind == "llamacpp"
		})
		if asked && len(cfg.Models) == 0 && cfg.Router.Mode == "kv" {
			fmt.Fprintln(w, "tokens of prompts are asked from the engines; with --tokenizer REF they are made here, which is faster")
		}
	}
	fmt.Fprintf(w, "\n  curl -N %s%s%s\n\n", insecure, auth, chatExample(base, models[0]))
}

// greetEngines says what each engine turned out to be.
func greetEngines(w io.Writer, engines []stator.EngineInfo) {
	for _, e := range engines {
		if e.Kind == "" {
			fmt.Fprintf(w, "  %s: no answer yet\n", e.URL)
			continue
		}
		parts := []string{strings.TrimSpace(e.Kind + " " + e.Version)}
		if e.Ranks > 1 {
			parts = append(parts, count(e.Ranks, "rank"))
		}
		if e.BlockSize > 0 && e.KVBlocks > 0 {
			parts = append(parts, fmt.Sprintf("%d blocks of %d tokens", e.KVBlocks, e.BlockSize))
		}
		switch {
		case e.Events == "":
			parts = append(parts, "no events: its cache is guessed from what is sent there")
		case e.Replay:
			parts = append(parts, "events at "+e.Events+" with replay")
		case e.Events == "polled":
			parts = append(parts, "events are polled")
		default:
			parts = append(parts, "events at "+e.Events)
		}
		fmt.Fprintf(w, "  %s: %s\n", e.URL, strings.Join(parts, ", "))
	}
}

// chatExample returns the rest of a curl line that asks for a streamed answer.
func chatExample(base, model string) string {
	name, err := json.Marshal(model)
	if err != nil {
		panic(err) // a string can be marshalled
	}
	body := fmt.Sprintf(`{"model":%s,"stream":true,"messages":[{"role":"user","content":"Hello!"}]}`, name)
	return fmt.Sprintf("%s/v1/chat/completions -H 'Content-Type: application/json' -d %s", base, shellQuote(body))
}

// reachable returns addr with a host that a client on this machine can use.
func reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// shellQuote quotes s for a POSIX shell.
func shellQuote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
