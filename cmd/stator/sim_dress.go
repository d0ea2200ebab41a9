package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/stator-ai/stator/internal/simserver"
)

// dressFlags is what the command line says about the engine that a simulated one looks
// like, and about what goes wrong with it.
type dressFlags struct {
	dress    string
	dev      bool
	priority bool
	slots    int
	events   string
	replay   string
	format   string
	faults   []string
}

// defaultEvents is where events are published unless an address is given.
const defaultEvents = "127.0.0.1:5557"

func (f *dressFlags) add(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&f.dress, "dress", "", "engine to look like, `ENGINE`: "+strings.Join(simserver.Dresses(), ", "))
	fs.BoolVar(&f.dev, "dev-mode", false, "answer the routes of vLLM's development mode as well")
	fs.BoolVar(&f.priority, "priority-scheduling", false, "go by the priorities of requests, as the engine does")
	fs.IntVar(&f.slots, "slots", 0, "`NUMBER` of requests that llamacpp runs at a time (default 4)")
	fs.StringVar(&f.events, "events", "", "publish KV events, at `HOST:PORT` and a port above for each further rank; --events alone for "+defaultEvents)
	fs.Lookup("events").NoOptDefVal = defaultEvents
	fs.StringVar(&f.replay, "replay", "", "answer for missed KV events at `HOST:PORT`, likewise")
	fs.StringVar(&f.format, "event-format", "", "`FORMAT` of the events: map, array, bytes, or that of a release such as vllm-0.20")
	fs.StringArrayVar(&f.faults, "fault", nil, "what goes wrong, `KIND[:ARGS]`, see above; repeat for more")
	for flag, words := range map[string][]string{
		"dress":        simserver.Dresses(),
		"event-format": append([]string{"map", "array", "bytes"}, simserver.EventFormats()...),
		"fault":        simserver.FaultUsage(),
	} {
		// The error is about a flag that does not exist.
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	}
}

// args refuses arguments; an address may have been meant for --events.
func (f *dressFlags) args(cmd *cobra.Command, args []string) error {
	if len(args) == 1 && cmd.Flags().Changed("events") && f.events == defaultEvents {
		return &usageError{err: fmt.Errorf("%s: expected --events=%s", args[0], args[0]), hint: true}
	}
	return atMost(0)(cmd, args)
}

// kind returns the engine that is modelled under the dress, empty for any.
func (f *dressFlags) kind() string {
	switch simserver.Dress(f.dress) {
	case simserver.DressVLLM, simserver.DressTRTLLM:
		return "vllm"
	case simserver.DressSGLang:
		return "sglang"
	default:
		return ""
	}
}

// check refuses what the flags cannot mean. The engine is modelled or not.
func (f *dressFlags) check(fs *pflag.FlagSet, modelled bool) error {
	dress := simserver.Dress(f.dress)
	if dress != simserver.Plain && !slices.Contains(simserver.Dresses(), f.dress) {
		return fmt.Errorf("--dress: expected one of %s, got %q", strings.Join(simserver.Dresses(), ", "), f.dress)
	}
	llama := dress == simserver.DressLlamaCpp
	switch {
	case dress != simserver.Plain && fs.Changed("kind"):
		return errors.New("--kind: expected without --dress, which decides it")
	case f.dev && dress != simserver.DressVLLM:
		return errors.New("--dev-mode: expected with --dress vllm only")
	case f.slots != 0 && !llama:
		return errors.New("--slots: expected with --dress llamacpp only")
	case f.slots < 0:
		return fmt.Errorf("--slots: expected at least 1, got %d", f.slots)
	case f.priority && (llama || dress == simserver.Plain):
		return errors.New("--priority-scheduling: expected with --dress vllm, sglang or trtllm")
	case f.priority && !modelled:
		return errors.New("--priority-scheduling: expected a profile with a modelled engine")
	case f.events != "" && llama:
		return errors.New("--events: llamacpp publishes none")
	case f.events != "" && !modelled:
		return errors.New("--events: expected a profile with a modelled engine")
	case dress == simserver.DressTRTLLM && f.events != "" && f.events != defaultEvents:
		return errors.New("--events: expected without an address with --dress trtllm, which is asked at /kv_cache_events")
	case f.events == "" && (f.replay != "" || f.format != ""):
		return errors.New("--replay, --event-format: expected with --events only")
	}
	if llama {
		for _, flag := range []string{"block-size", "blocks", "max-seqs", "ranks"} {
			if fs.Changed(flag) {
				return fmt.Errorf("--%s: expected without --dress llamacpp, which has --slots and --context-length", flag)
			}
		}
	}
	for _, text := range f.faults {
		if _, err := simserver.ParseFault(text); err != nil {
			return fmt.Errorf("--%w", err)
		}
	}
	return nil
}

// apply completes the configuration of the engine.
func (f *dressFlags) apply(cfg *simserver.Config) {
	cfg.Dress = simserver.Dress(f.dress)
	cfg.DevMode, cfg.PriorityScheduling, cfg.Slots = f.dev, f.priority, f.slots
	if cfg.Dress == simserver.DressLlamaCpp {
		cfg.Kind, cfg.BlockSize, cfg.TotalBlocks = "", 0, 0
		if cfg.Engine != nil {
			cfg.Engine.MaxSeqs = 0
		}
	}
	if f.events != "" {
		cfg.Publish = &simserver.PublishConfig{Listen: f.events, Replay: f.replay, Format: f.format}
		if cfg.Dress == simserver.DressTRTLLM {
			cfg.Publish.Listen = ""
		}
	}
	for _, text := range f.faults {
		if fault, err := simserver.ParseFault(text); err == nil { // which check has seen to
			cfg.Faults = append(cfg.Faults, fault)
		}
	}
}

// describe prints what the engine looks like and where its events are.
func (f *dressFlags) describe(w io.Writer, sim *simserver.Server) {
	if f.dress != "" {
		fmt.Fprintf(w, "dressed as %s\n", f.dress)
	}
	publish, replay := sim.EventAddrs()
	if len(publish) > 0 {
		fmt.Fprintf(w, "publishing KV events at %s\n", strings.Join(publish, ", "))
	}
	if len(replay) > 0 {
		fmt.Fprintf(w, "answering for missed ones at %s\n", strings.Join(replay, ", "))
	}
	for _, fault := range sim.Faults() {
		fmt.Fprintf(w, "with the fault %s\n", fault)
	}
}
