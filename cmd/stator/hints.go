package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/stator-ai/stator"
	"github.com/stator-ai/stator/hints"
	"github.com/stator-ai/stator/internal/engine/openaihttp"
	"github.com/stator-ai/stator/internal/hintproxy"
	"github.com/stator-ai/stator/trie"
)

func hintsCommand() *cobra.Command {
	f := hintsFlags{log: stator.DefaultConfig().Log}
	cmd := &cobra.Command{
		Use:   "hints",
		Short: "Add hints to the calls of an agent, as a local proxy",
		Long: `Stand between an agent and its server as a local proxy, and add hints to its calls of
models: which of them share the beginning of their prompts, how many will follow and
how soon, how long the answer will be, and how much somebody waits for it. This is
package hints for programs in any language. Everything else passes as it is, answers
and their streams included.

Where a call stands is said in headers of its request:

  X-Stator-Run           the run of the agent; Workflow-Run-Id and the session headers
                         of Dynamo, Claude Code, Codex and OpenCode are understood, too
  X-Stator-Path          the functions it is made in, outermost first: plan/search
  X-Stator-Function-Id   which invocation of the last of them it is
  X-Stator-Branch        the parallel branch

and what is expected of it in X-Prefix-Latency-Sensitivity, X-Prefix-Osl,
X-Prefix-Iat, X-Prefix-Total-Requests, X-Prefix-Id and X-Nat-Remaining-Llm-Calls.
Without any, a call counts as one of the proxy's own run, and the flags say what to
expect. Neither --record nor --trie is then of use: what they are about is a run.

--config reads the settings of an LLM of NeMo Agent Toolkit, nvext_prefix_osl and its
like, at the top of a YAML file, below the key hints, or of the one LLM of type dynamo
in a file of the toolkit's. Flags win. request_timeout has no effect: an answer may take
its time.

The file of --trie is read again when it changes. What --record writes is what
stator trie build makes one of.

GET /_stator/hints/stats says what was done so far, GET /_stator/hints/live that it
runs. The first SIGINT or SIGTERM lets running requests end, the second does not.`,
		Example: `  stator hints --to http://gpu1:8000
  OPENAI_BASE_URL=http://127.0.0.1:8010/v1 python agent.py    # in another terminal
  stator hints --record spans.jsonl
  stator trie build spans.jsonl -o trie.json && stator hints --trie trie.json`,
		Args: atMost(0),
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.listen, "listen", "127.0.0.1:8010", "`HOST:PORT` to serve on")
	fs.StringVar(&f.to, "to", "http://127.0.0.1:8000", "base `URL` of the server to pass requests on to (STATOR_HINTS_TO)")
	fs.StringVar(&f.config, "config", "", "YAML `FILE` with settings")
	f.addSettings(cmd)
	fs.StringVar(&f.record, "record", "", "`FILE` that gets a line of JSON for each call of a model; of use only if X-Stator-Run or a session header tells runs apart")
	fs.BoolVar(&f.insecure, "insecure", false, "do not check the server's certificate")
	fs.StringVar(&f.log.Level, "log-level", f.log.Level, "`LEVEL`: debug, with a line for each request, info, warn or error")
	fs.StringVar(&f.log.Format, "log-format", f.log.Format, "`FORMAT`: text or json")
	complete(cmd, "log-level", "debug", "info", "warn", "error")
	complete(cmd, "log-format", "text", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if env := os.Getenv("STATOR_HINTS_TO"); env != "" && !fs.Changed("to") {
			f.to, f.toFrom = env, "STATOR_HINTS_TO"
		}
		stdout, stderr := cmd.OutOrStdout(), cmd.ErrOrStderr()
		cfg, err := f.resolve(stderr)
		if err != nil {
			return err
		}
		return serveHints(cmd.Context(), &f, cfg, stdout, stderr)
	}
	return cmd
}

// hintsFlags is what the command line says about a hint proxy.
type hintsFlags struct {
	listen     string
	to, toFrom string // toFrom names what said it, if no flag did
	config     string
	settings   []*hintFlag
	record     string
	insecure   bool
	log        stator.LogConfig
}

// resolve returns what the proxy is made of. It reads the files that have to be there, and
// prints warnings.
func (f *hintsFlags) resolve(stderr io.Writer) (hintproxy.Config, error) {
	usage := func(format string, args ...any) (hintproxy.Config, error) {
		return hintproxy.Config{}, &usageError{err: fmt.Errorf(format, args...), hint: true}
	}
	to, err := openaihttp.Normalize(f.to)
	if err != nil {
		from := f.toFrom
		if from == "" {
			from = "--to"
		}
		return usage("%s: expected a base URL such as http://127.0.0.1:8000, got %s", from, quoteURL(f.to))
	}
	check := stator.DefaultConfig()
	check.Log = f.log
	var invalid *stator.ConfigError
	if err := check.Validate(); errors.As(err, &invalid) {
		p := invalid.Problems[0]
		return usage("--%s: %s", strings.ReplaceAll(p.Key, ".", "-"), p.Reason)
	}
	cfg := hintproxy.Config{Upstream: to, Record: f.record, Log: newLogger(stderr, f.log)}
	if cfg.Hints, err = f.hints(stderr); err != nil {
		return cfg, err
	}
	if f.insecure {
		cfg.Hints.VerifySSL = false
	}
	return cfg, nil
}

// hints returns the settings of hints: those of the file, then the flags.
func (f *hintsFlags) hints(stderr io.Writer) (hints.Config, error) {
	cfg := hints.DefaultConfig()
	cfg.Enable = true
	if f.config != "" {
		file, warnings, err := readHintsFile(f.config)
		if err != nil {
			return cfg, fmt.Errorf("--config: %w", err)
		}
		for _, w := range warnings {
			fmt.Fprintln(stderr, "warning:", w)
		}
		cfg = file
	}
	for _, s := range f.settings {
		if !s.given {
			continue
		}
		if err := s.apply(&cfg, s.text); err != nil {
			return cfg, err
		}
		if s.name == "trie" && s.text != "" { // whoever types it means a file that is there
			if _, err := trie.Load(s.text); err != nil {
				return cfg, fmt.Errorf("--trie: %w", err)
			}
		}
	}
	if !cfg.Enable {
		without := "requests pass without hints"
		if f.record != "" {
			without += " and are not recorded"
		}
		fmt.Fprintf(stderr, "warning: %s: enable_nvext_hints is false: %s\n", f.config, without)
	}
	return cfg, nil
}

// quoteURL quotes a URL without the password it may hold.
func quoteURL(raw string) string {
	u, err := url.Parse(raw)
	switch {
	case err == nil:
		return fmt.Sprintf("%q", u.Redacted())
	case strings.Contains(raw, "@"):
		return "something else"
	}
	return fmt.Sprintf("%q", raw)
}

// serveHints serves until a signal ends it.
func serveHints(ctx context.Context, f *hintsFlags, cfg hintproxy.Config, stdout, stderr io.Writer) (failure error) {
	l, err := net.Listen("tcp", f.listen)
	if err != nil {
		return listenError(err, nil)
	}
	defer l.Close()
	if isItself(l.Addr(), cfg.Upstream) {
		return &usageError{err: fmt.Errorf("--to: expected another server, got %s, which is this proxy", cfg.Upstream)}
	}
	if !isLoopback(l.Addr()) {
		fmt.Fprintf(stderr, "warning: %s is reachable from other machines: anyone can use %s through it\n", l.Addr(), cfg.Upstream)
	}
	proxy, err := hintproxy.New(cfg)
	if err != nil {
		return recordError(err, f.record)
	}
	defer func() { failure = errors.Join(failure, recordError(proxy.Close(), f.record)) }()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	srv := proxy.Server()
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()

	f.greet(stdout, l.Addr().String(), &cfg)
	select {
	case err := <-failed:
		return err
	case <-signals:
	}
	err = drainHints(ctx, srv, signals, stderr)
	s := proxy.Stats()
	fmt.Fprintf(stdout, "passed on %s in %s, %d of them with hints\n",
		count(int(s.Requests), "request"), time.Duration(s.UptimeSeconds*float64(time.Second)).Round(time.Second), s.Hints.Hinted)
	return err
}

// drainHints lets running requests end, for a time, and ends the others.
func drainHints(ctx context.Context, srv *http.Server, signals <-chan os.Signal, stderr io.Writer) error {
	timeout := stator.DefaultConfig().Drain.Timeout
	fmt.Fprintf(stderr, "draining for at most %s; interrupt again to stop at once\n", formatDuration(timeout))
	drain, stop := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer stop()
	drained := make(chan error, 1)
	go func() { drained <- srv.Shutdown(drain) }()
	select {
	case err := <-drained:
		if errors.Is(err, context.DeadlineExceeded) {
			return errors.Join(fmt.Errorf("requests were still running after %s", formatDuration(timeout)), srv.Close())
		}
		return err
	case <-signals:
		return errors.Join(errors.New("stopped at once"), srv.Close())
	}
}

// greet says where the proxy is and how an agent gets there.
func (f *hintsFlags) greet(w io.Writer, addr string, cfg *hintproxy.Config) {
	base := "http://" + reachable(addr)
	how := "with hints"
	if !cfg.Hints.Enable {
		how = "without hints"
	}
	fmt.Fprintf(w, "listening on http://%s\n", addr)
	fmt.Fprintf(w, "passing requests on to %s, %s\n", cfg.Upstream, how)
	if path := cfg.Hints.TriePath; path != "" && cfg.Hints.Enable {
		fmt.Fprintf(w, "predicting by %s\n", path)
	}
	if f.record != "" && cfg.Hints.Enable {
		fmt.Fprintf(w, "recording to %s\n", f.record)
	}
	fmt.Fprintf(w, "\n  export OPENAI_BASE_URL=%s%s\n", base, f.apiPath(cfg.Upstream))
	fmt.Fprintf(w, "  curl %s%sstats\n\n", base, hintproxy.Routes)
}

// apiPath returns what follows the proxy's address in a client's base URL: what a URL such
// as https://host/api/v4 has in it already, and /v1 where it is customary.
func (f *hintsFlags) apiPath(to *url.URL) string {
	if to.Path == "" || strings.HasSuffix(strings.TrimRight(f.to, "/"), "/v1") {
		return "/v1"
	}
	return ""
}

// isItself reports whether a request to the URL would come back.
func isItself(a net.Addr, to *url.URL) bool {
	tcp, ok := a.(*net.TCPAddr)
	port := to.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[to.Scheme]
	}
	if !ok || fmt.Sprint(tcp.Port) != port {
		return false
	}
	if to.Hostname() == "localhost" {
		return tcp.IP.IsLoopback() || tcp.IP.IsUnspecified()
	}
	ip := net.ParseIP(to.Hostname())
	return ip != nil && (ip.Equal(tcp.IP) || ip.IsLoopback() && tcp.IP.IsUnspecified())
}

// recordError names the flag in an error about its file.
func recordError(err error, path string) error {
	if err == nil || path == "" {
		return err
	}
	return fmt.Errorf("--record: %w", err)
}
