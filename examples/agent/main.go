// Command agent shows what hints do for an agent. It does the same work three times: coding
// agents, for whom people wait, beside a batch of documents, for which nobody does. The
// first time the client sends requests as they are, the second time with hints, and the
// third time with hints that are predicted from what was recorded the second time.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"text/tabwriter"
	"time"

	"github.com/stator-ai/stator"
	"github.com/stator-ai/stator/hints"
	"github.com/stator-ai/stator/trie"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var w workload
	flags := flag.NewFlagSet("agent", flag.ContinueOnError)
	flags.StringVar(&w.url, "url", "", "a running server, as http://127.0.0.1:8000; empty to start one")
	flags.StringVar(&w.model, "model", "stator-sim", "the model to call")
	flags.IntVar(&w.agents, "agents", 10, "how many agents run at a time")
	flags.IntVar(&w.edits, "edits", 8, "how many edits each of them makes")
	flags.IntVar(&w.readers, "readers", 20, "how many documents are read at a time")
	record := flags.String("record", "", "where to record spans, for stator trie build; empty for nowhere")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if min(w.agents, w.edits, w.readers) < 1 {
		return errors.New("agents, edits and readers must be at least 1")
	}
	if w.url == "" {
		srv, err := startServer(ctx)
		if err != nil {
			return err
		}
		defer srv.Close()
		w.url = "http://" + srv.Addr()
	}

	// The work is the same in each pass. What differs is the client's transport.
	log := hints.WithLogger(slog.New(slog.DiscardHandler))
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "\t\tcalls\twithin\tTTFT p50\tTTFT p95\tcached tokens")
	if err := w.pass(ctx, table, "hints off", http.DefaultTransport); err != nil {
		return err
	}
	var spans bytes.Buffer
	recorded := hints.WithRecorder(ctx, hints.NewRecorder(&spans))
	if err := w.pass(recorded, table, "hints on", hints.NewTransport(nil, log)); err != nil {
		return err
	}
	if *record != "" {
		if err := os.WriteFile(*record, spans.Bytes(), 0o666); err != nil {
			return err
		}
	}
	predictions, err := build(&spans)
	if err != nil {
		return err
	}
	if err := w.pass(ctx, table, "predicted", hints.NewTransport(nil, log, hints.WithLookup(predictions))); err != nil {
		return err
	}
	table.Flush()

	path := []string{"coder", "editor"}
	p, ok := predictions.Find(path, 1)
	if !ok {
		return fmt.Errorf("nothing is predicted for %v", path)
	}
	fmt.Fprintf(out, "\nThe first call in %v: %.1f calls follow, the next after %.0f ms; the answer has %.0f tokens.\nIt is sent with\n",
		path, p.RemainingCalls.Mean, p.InterArrivalMS.Mean, p.OutputTokens.P90)
	shown := newClient(w.url, hints.NewTransport(printer{out}, log, hints.WithLookup(predictions)))
	ctx = hints.EnterFunction(hints.EnterFunction(hints.WithRun(ctx, "run-42"), path[0]), path[1])
	_, err = w.call(hints.WithLatencySensitivity(ctx, urgent), shown, prompt("shown", 1), 1, new(results))
	return err
}

// startServer starts a server with two simulated engines, four times as fast as an 8B model
// on an H200. Without a threshold requests would go to an engine at once, and wait there in
// the order in which they came. With one they wait in the router while both engines have
// that many batches of prompts before them, and the urgent ones go first.
func startServer(ctx context.Context) (*stator.Server, error) {
	cfg := stator.DefaultConfig()
	cfg.Listen = "127.0.0.1:0"
	cfg.Sim.Engines, cfg.Sim.Speedup, cfg.Sim.MaxNumBatchedTokens = 2, 4, 2048
	threshold := 1.0
	cfg.Router.Queue.Threshold = &threshold
	cfg.Router.KV.TrackOutputBlocks = true // how long answers will be counts as load
	srv, err := stator.New(cfg)
	if err != nil {
		return nil, err
	}
	return srv, srv.Start(ctx)
}

// build makes predictions of what was recorded, as stator trie build does.
func build(spans io.Reader) (*trie.Trie, error) {
	b := trie.NewBuilder(trie.Options{WorkflowName: "example"})
	err := trie.ReadSpans(spans, func(run []trie.Step) error { b.Add(run); return nil })
	return b.Build(time.Now()), err
}

// printer is a transport that prints the nvext of what is sent.
type printer struct{ out io.Writer }

func (p printer) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := req.GetBody()
	if err != nil {
		return nil, err
	}
	var sent struct{ NvExt json.RawMessage }
	if err := json.NewDecoder(body).Decode(&sent); err != nil {
		return nil, err
	}
	fmt.Fprintf(p.out, "%s\n", sent.NvExt)
	return http.DefaultTransport.RoundTrip(req)
}
