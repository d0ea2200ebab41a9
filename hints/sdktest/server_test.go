package sdktest_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3/option"

	"github.com/stator-ai/stator"
	"github.com/stator-ai/stator/hints"
	"github.com/stator-ai/stator/nvext"
)

// startStator runs a server over simulated engines that take no time. Its trace is in the
// file once stop has returned.
func startStator(t *testing.T) (url, trace string, stop func()) {
	t.Helper()
	cfg := stator.DefaultConfig()
	cfg.Listen = "127.0.0.1:0"
	cfg.Sim.Engines, cfg.Sim.Speedup = 2, 0
	cfg.Trace.Out = filepath.Join(t.TempDir(), "trace.jsonl")
	srv, err := stator.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := srv.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	closed := false
	stop = func() {
		if !closed {
			closed = true
			if err := srv.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(stop)
	return "http://" + srv.Addr(), cfg.Trace.Out, stop
}

// traced is what a row of the trace says of a request's hints.
type traced struct {
	PrefixID           string  `json:"prefix_id"`
	LatencySensitivity float64 `json:"latency_sensitivity"`
	Priority           int     `json:"priority"`
	OSL                int     `json:"osl"`
	TotalRequests      int     `json:"total_requests"`
	IAT                int     `json:"iat"`
	CacheTTL           string  `json:"cache_ttl"`
}

func readTrace(t *testing.T, path string) (rows []traced) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for s := bufio.NewScanner(bytes.NewReader(data)); s.Scan(); {
		var row struct{ Hints traced }
		if err := json.Unmarshal(s.Bytes(), &row); err != nil {
			t.Fatalf("%s: %v", s.Bytes(), err)
		}
		rows = append(rows, row.Hints)
	}
	return rows
}

// TestStator sends hints through the SDKs to a real server, whose trace has them as they
// were meant.
func TestStator(t *testing.T) {
	url, trace, stop := startStator(t)
	client := &http.Client{Transport: hints.NewTransport(nil, silent)}
	var want []traced
	for _, sdk := range sdks {
		if sdk.path != "/v1/chat/completions" {
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		ctx = hints.WithRun(ctx, sdk.name)
		ctx = hints.WithLatencySensitivity(hints.EnterFunction(ctx, "planner"), 7)
		ctx = hints.WithOutputTokens(ctx, 15)
		text, err := sdk.ask(ctx, client, url, func() {})
		if err != nil || text == "" {
			t.Fatalf("%s: answer %q, error %v", sdk.name, text, err)
		}
		// The same question, without hints, has the same answer.
		if plain, err := sdk.ask(ctx, http.DefaultClient, url, func() {}); err != nil || plain != text {
			t.Errorf("%s: with hints %q, without %q, error %v", sdk.name, text, plain, err)
		}
		want = append(want, traced{PrefixID: sdk.name + "-d1", LatencySensitivity: 7, Priority: 7, OSL: 15, TotalRequests: 10, IAT: 250, CacheTTL: "3s"}, traced{})
	}
	stop()
	got := readTrace(t, trace)
	for _, rows := range [][]traced{want, got} { // rows come as requests end
		slices.SortFunc(rows, func(a, b traced) int { return strings.Compare(a.PrefixID, b.PrefixID) })
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the hints in the trace (-want +got)\n%s", diff)
	}
}

// TestStatorMerge checks that what a program puts into nvext itself is there as well: the
// explanation that it asks for comes, and says what was hinted.
func TestStatorMerge(t *testing.T) {
	url, _, _ := startStator(t)
	client := openaiClient(&http.Client{Transport: hints.NewTransport(nil, silent)}, url)
	ctx := hints.WithOutputTokens(hints.WithRun(t.Context(), "r"), 15)
	answer, err := client.Chat.Completions.New(ctx, chat, option.WithJSONSet("nvext", nvext.New(nvext.Extra("routing"), nvext.PinWorker(2))))
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		NvExt nvext.Response `json:"nvext"`
	}
	if err := json.Unmarshal([]byte(answer.RawJSON()), &got); err != nil {
		t.Fatal(err)
	}
	routing := got.NvExt.Routing
	switch {
	case routing == nil:
		t.Fatalf("no explanation in %s", answer.RawJSON())
	case routing.Reason != nvext.ReasonPinned || routing.Chosen.WorkerID != 2:
		t.Errorf("%s on worker %d, want it pinned to worker 2", routing.Reason, routing.Chosen.WorkerID)
	case routing.Expected == nil || routing.Expected.OSL == nil || *routing.Expected.OSL != 15 || len(routing.Expected.Inferred) > 0:
		t.Errorf("expected %+v, want an answer of 15 tokens, as hinted", routing.Expected)
	}
}
