// Command bench measures what stator costs, side by side with something simple
// that does part of its job:
//
//	go run ./bench
//	go run ./bench -run sse -seconds 5
//
// It builds stator and starts real processes on the loopback interface: a
// simulated engine, stator in front of it, and a baseline in front of the same
// engine. The load generator lives in this process, and so does a stand-in for the
// engine that gives its answers faster, for the measurements of CPU time.
//
//	proxy  CPU per unary request, small and large, against a bare
//	       httputil.ReverseProxy
//	sse    CPU per relayed chunk of a stream, against a proxy that copies the body
//	       and flushes after each read
//	idle   memory per open stream that is silent
//	start  time to the first answer, memory and size of an idle server
//	sim    request rate of a simulated engine that takes no time, against a handler
//	       that writes the same bytes
//	replay an hour of traffic over simulated engines in virtual time, against the
//	       hour
//	tokenize
//	       encoding of text and chats on one thread, against Hugging Face's
//	       tokenizers and tiktoken, which scripts/oracle/setup.sh installs;
//	       loading a tokenizer.json, against encoding/json
//	index  which worker holds which KV-cache blocks: events and lookups of
//	       simulated engines under load, against maps behind a lock and a radix tree
//	       with a lock per node; memory, long lookups, lookups while a rank is removed
//	decide choosing a rank for a prompt and booking it, against hashing the prompt
//	       and against maps of blocks; allocations, decisions amid events
//	events from the event socket of an engine to what lookups see, against decoding
//	       the same payloads, and against decoding and applying them
//	usage  CPU per stream whose usage stator asks for and hides, against one whose
//	       client asked, and against one without
//	request
//	       CPU of a request with a prompt of 100,000 tokens, stage by stage, against
//	       a bare httputil.ReverseProxy
//	hints  what an agent pays for hints: adding them to a long request, against
//	       json.Valid and against a copy; the heap after a million prefixes
//	trie   looking a prediction up, against an access to a map; building a trie from
//	       a million calls; its file, against encoding/json
//	learn  CPU per unary request of a server that infers hints, against one that does
//	       not
//	policy choosing a rank by a policy that learns, against the cost selector on the
//	       same candidates; feedback, and placements against those by cost
//
// Machines are noisy, so a ratio decides where there is one: both sides take turns
// under the same load with the same number of requests, and the median over the
// rounds of stator's CPU time over the baseline's is held against the target. CPU
// time is that of the proxy's process alone, in nanoseconds from its CPU clock; the
// engine and the load generator do not count. Every answer is compared with the
// engine's own, so that a proxy cannot win by being wrong. Times and nginx, where
// it is installed, are printed for information.
//
// A result, of a virtual machine with two cores:
//
//	Linux 6.18.44-fc-v310, go1.26.8, linux/amd64, 2 cores
//
//	what                                            baseline  stator    ratio  range      target
//	CPU per request, 72 B                           76.8 µs   77.6 µs   1.05   0.95–1.23  ≤ 1.5×    ok
//	CPU per request, 200 KB                         167.2 µs  172.9 µs  1.03   0.94–1.06  ≤ 1.3×    ok
//	CPU per relayed chunk                           9.5 µs    10.7 µs   0.98   0.86–1.18  ≤ 2.5×    ok
//	memory per idle stream, 4000 open               55.7 KiB  58.7 KiB  1.05              < 64 KiB  ok
//	start to first streamed byte                              0.053 s                     < 1 s     ok
//	resident memory after 3 s idle                            29.4 MB                     < 60 MB   ok
//	size of the binary                                        33.4 MB                     < 60 MB   ok
//	rate of simulated answer of 64                  50224/s   36791/s   0.75   0.70–0.81  ≥ 0.7×    ok
//	rate of simulated stream of 32                  6606/s    6521/s    0.99   0.79–1.10  ≥ 0.7×    ok
//	replay of an hour over 8 engines, round-robin   3540 s    1.14 s    3118×             ≥ 500×    ok
//	allocations per simulated token                           0.0083                      < 0.1     ok
//	replay of an hour over 8 engines, kv            3540 s    1.24 s    2856×             ≥ 500×    ok
//	allocations per simulated token                           0.0090                      < 0.1     ok
//	replay of an hour over 64 engines, round-robin  3540 s    1.38 s    2558×             ≥ 500×    ok
//	allocations per simulated token                           0.0128                      < 0.1     ok
//	replay of an hour over 64 engines, kv           3540 s    1.69 s    2100×             ≥ 500×    ok
//	allocations per simulated token                           0.0139                      < 0.1     ok
//
// and of the index:
//
//	what                                                baseline  stator     ratio  range      target
//	index, 16 workers, blocks of 16, over maps          1.04 M/s  25.81 M/s  21.5   18.9–26.9  ≥ 20×   ok
//	index, 16 workers, blocks of 16, over radix tree    2.66 M/s  25.81 M/s  9.5    7.4–10.5   ≥ 5×    ok
//	index, 64 workers, blocks of 16, over maps          0.88 M/s  17.12 M/s  19.5   16.8–23.0  ≥ 20×   over
//	index, 64 workers, blocks of 16, over radix tree    1.85 M/s  17.12 M/s  8.9    8.6–9.7    ≥ 5×    ok
//	index, 16 workers, blocks of 64, over maps          0.99 M/s  14.69 M/s  14.8   12.8–16.6  ≥ 20×   over
//	index, 16 workers, blocks of 64, over radix tree    1.99 M/s  14.69 M/s  7.4    6.8–8.4    ≥ 5×    ok
//	index, 64 workers, blocks of 64, over maps          0.76 M/s  13.06 M/s  17.0   15.4–17.2  ≥ 20×   over
//	index, 64 workers, blocks of 64, over radix tree    1.86 M/s  13.06 M/s  6.9    6.2–8.3    ≥ 5×    ok
//	memory per block held, 16 workers, blocks of 16               38.3 B                       ≤ 64 B  ok
//	lookup while a rank of 1 M blocks is removed, p99             16.6 µs                      ≤ 5 ms  ok
//	lookup of 8192 blocks over 64 ranks, to hashing     137.3 µs  9.5 µs     0.06   0.06–0.12  ≤ 0.5×  ok
//
// and of decisions; the rate falls below its target when the machine has a slow hour:
//
//	what                                                         baseline   stator    ratio  range      target
//	hashing and deciding, 131072 tokens × 64 ranks, to hashing   120.0 µs   126.0 µs  1.26   0.95–1.34  ≤ 1.5×     ok
//	hashing and deciding, 131072 tokens × 64 ranks, over maps    7103.2 µs  281.4 µs  25.2   23.7–27.4  ≥ 10×      ok
//	decisions a second and core, 1024 tokens × 64 ranks                     116 k/s                     ≥ 100 k/s  ok
//	decision amid events, 1024 tokens × 64 ranks, p50            8.5 µs     8.3 µs    0.97   0.86–1.14  ≤ 1.5×     ok
//
// and of the agent's side, while others used the machine:
//
//	what                                                                      baseline    stator      ratio  range      target
//	hints added to 203 KB of source files, to json.Valid                      709.0 µs    146.0 µs    0.20   0.20–0.22  ≤ 0.3×   ok
//	hints added to 203 KB of prose, to a copy                                 68.2 µs     92.1 µs     1.47   1.34–1.83  ≤ 3.0×   ok
//	heap of a client after 1 M prefixes, to after 0.1 M                       4.50 MB     4.50 MB     1.00              ≤ 1.1×   ok
//	prefixes counted after 1 M                                                            16384                         ≤ 16384  ok
//	lookup in a trie, 4 names, own index, to a map access                     47.1 ns     163.3 ns    3.47   3.45–3.49  ≤ 8.0×   ok
//	lookup in a trie, 4 names, own index, to making the key and a map access  117.8 ns    163.3 ns    1.39   1.38–1.40  ≤ 3.0×   ok
//	lookup in a trie, 4 names, any index, to a map access                     46.4 ns     191.3 ns    4.13   4.11–4.16  ≤ 8.0×   ok
//	lookup in a trie, 4 names, any index, to making the key and a map access  105.6 ns    191.3 ns    1.81   1.80–1.84  ≤ 3.0×   ok
//	allocations per lookup in a trie                                                      0                             0        ok
//	reading a trie of 1.1 MB, to encoding/json                                107.6 MB/s  192.9 MB/s  0.56   0.49–0.59  ≤ 1.0×   ok
//	writing a trie of 1.1 MB, to encoding/json                                88.5 MB/s   800.4 MB/s  0.11   0.10–0.12  ≤ 0.5×   ok
//	trie: built from 1 M calls in 100000 runs, 3.6 M steps: 3.18 s of processor time, 314 k calls/s, at most 156 MB of heap, garbage included; 331 nodes
//
// and of policies that learn:
//
//	what                                                                               baseline  stator            ratio  range        target
//	deciding by policy safe, 8 ranks, all admissible, to the cost                      157.7 ns  4.2 µs            26.86  26.33–27.50  ≤ 48.0×   ok
//	single decision, 8 ranks, all admissible, p99                                                6.6 µs (safe)                         ≤ 20 µs   ok
//	feedback, 8 ranks                                                                            0.6 µs (safe)                         ≤ 5 µs    ok
//	deciding by policy safe, 64 ranks, all admissible, to the cost                     972.3 ns  12.9 µs           13.70  13.06–15.63  ≤ 48.0×   ok
//	deciding by policy reference, 64 ranks, all admissible, to the cost                972.3 ns  14.8 µs           15.73  13.58–16.99  ≤ 48.0×   ok
//	single decision, 64 ranks, all admissible, p99                                               27.6 µs (shadow)                      ≤ 150 µs  ok
//	placement by policy safe, 1024 tokens × 64 ranks, to one by cost                   11.4 µs   31.5 µs           2.69   2.66–2.96    ≤ 4.0×    ok
//	lock held by a placement by a policy, 1024 tokens × 64 ranks, p50, to one by cost  6.3 µs    28.1 µs (shadow)  4.76   2.77–7.04    ≤ 8.0×    ok
//	policy: 64 ranks, all admissible: a core makes 65 k decisions with feedback a second by the slowest policy, reference
//
// The exit code is 1 when a target is missed and 2 when something could not be
// measured.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options is what the measurements share.
type options struct {
	stator string // the binary
	dir    string // for temporary files
	round  time.Duration
	rounds int
	log    io.Writer
}

func (o *options) progress(format string, args ...any) {
	fmt.Fprintf(o.log, format+"\n", args...)
}

// measurements are what -run selects from, in the order in which they run.
var measurements = []struct {
	name string
	run  func(context.Context, options, *report) error
}{
	{"proxy", measureUnary},
	{"sse", measureStream},
	{"idle", measureIdle},
	{"start", measureStart},
	{"sim", measureSim},
	{"replay", measureReplay},
	{"tokenize", measureTokenize},
	{"index", measureIndex},
	{"decide", measureDecide},
	{"events", measureEvents},
	{"usage", measureUsage},
	{"request", measureRequest},
	{"hints", measureHints},
	{"trie", measureTrie},
	{"learn", measureLearn},
	{"policy", measurePolicy},
}

var errOver = errors.New("over target")

// missingError is returned by a measurement that had to leave something out. The
// rest counts all the same.
type missingError struct{ error }

func (e *missingError) Unwrap() error { return e.error }

func main() {
	if len(os.Args) == 4 && os.Args[1] == proxyCommand {
		fmt.Fprintln(os.Stderr, serveProxy(os.Args[2], os.Args[3]))
		os.Exit(2)
	}
	switch err := run(os.Args[1:], os.Stdout, os.Stderr); {
	case errors.Is(err, errOver):
		os.Exit(1)
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
}

func run(args []string, stdout, stderr io.Writer) error {
	names := make([]string, len(measurements))
	for i, m := range measurements {
		names[i] = m.name
	}
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(stderr)
	selected := fs.String("run", strings.Join(names, ","), "measurements to run, separated by commas")
	seconds := fs.Float64("seconds", 3, "length of a round in seconds")
	rounds := fs.Int("rounds", 5, "number of rounds")
	binary := fs.String("stator", "", "stator binary to measure, instead of one that is built")
	if err := fs.Parse(args); err != nil {
		return err
	}
	wanted := strings.Split(*selected, ",")
	for _, w := range wanted {
		if !slices.Contains(names, w) {
			return fmt.Errorf("-run: expected some of %s, got %q", strings.Join(names, ", "), w)
		}
	}
	switch {
	case fs.NArg() > 0:
		return fmt.Errorf("expected flags only, got %q", fs.Arg(0))
	case !(*seconds >= 0.1 && *seconds <= 60):
		return fmt.Errorf("-seconds: expected 0.1 to 60, got %g", *seconds)
	case *rounds < 1:
		return fmt.Errorf("-rounds: expected at least 1, got %d", *rounds)
	}

	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	dir, err := os.MkdirTemp("", "stator-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	o := options{stator: *binary, dir: dir, round: time.Duration(*seconds * float64(time.Second)), rounds: *rounds, log: stderr}
	fmt.Fprintf(stdout, "%s, %s, %s/%s, %d cores\n", kernel(), runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	if o.stator == "" {
		if o.stator, err = build(ctx, dir); err != nil {
			return err
		}
	}
	began := time.Now()
	var r report
	var missing error
	for _, m := range measurements {
		if !slices.Contains(wanted, m.name) {
			continue
		}
		if err := m.run(ctx, o, &r); err != nil {
			err = fmt.Errorf("%s: %w", m.name, err)
			if _, ok := errors.AsType[*missingError](err); !ok {
				return err
			}
			missing = errors.Join(missing, err)
		}
	}
	r.note("took %s", time.Since(began).Round(time.Second))
	fmt.Fprintln(stdout)
	if err := r.write(stdout); err != nil {
		return err
	}
	if missing != nil {
		return missing
	}
	if r.over() {
		return errOver
	}
	return nil
}
