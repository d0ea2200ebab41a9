package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/stator-ai/stator"
	"github.com/stator-ai/stator/internal/indexserver"
	"github.com/stator-ai/stator/internal/kvlog"
)

func indexCommand() *cobra.Command {
	f := indexFlags{maxRestore: 16 << 30}
	cmd := &cobra.Command{
		Use:   "index",
		Short: "Serve an index of who holds which KV-cache blocks",
		Long: `Serve an index of KV-cache blocks: workers are registered, tell what their caches
hold, and queries answer how many tokens of a prompt each of them has. There is an
index for each model and routing group. /openapi.json describes the routes.

A worker that is registered with the endpoint on which its engine publishes KV events
is followed there, and asked at its replay_endpoint for what was missed. For others,
somebody posts to /events. GET /workers says how each stands.

Of the routes of Dynamo's indexer there are /register, /unregister, /workers, /query,
/query_by_hash, /dump, /health and /metrics. There are no /register_peer,
/deregister_peer, /peers and /reopen_logs.

Where workers tell nothing, POST /route says where prompts were sent, and --ttl and
--max-blocks say when they are forgotten.

--restore takes in what another index holds, or what --dump wrote, before the
service listens. A server that cannot be reached is passed over: the next is asked,
and without any the index begins empty. Endpoints are not in a dump: register workers
again.`,
		Example: `  stator index
  stator index --listen 0.0.0.0:8090 --restore http://peer1:8090 --restore http://peer2:8090
  stator index --restore state.json --dump state.json
  stator index --ttl 2m --max-blocks 1000000`,
		Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return &usageError{err: err, hint: true}
			}
			return serveIndex(cmd.Context(), &f, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.StringVar(&f.listen, "listen", "127.0.0.1:8090", "`HOST:PORT` to serve on")
	fs.StringArrayVar(&f.restore, "restore", nil, "begin with a dump, `FILE|URL`: that of the first server that answers; repeat for more")
	fs.StringVar(&f.dump, "dump", "", "`FILE` to write everything to at the end")
	fs.StringVar(&f.record, "record", "", "`FILE` to write the events to that are taken in, as JSON lines; .zst compresses them")
	fs.TextVar(&f.maxRestore, "max-restore-bytes", f.maxRestore, "largest body of POST /restore, `SIZE`")
	fs.DurationVar(&f.cfg.FrequencyWindow, "frequency-window", 0, "`TIME` for which queries say how often blocks were asked for; 0 for never")
	fs.DurationVar(&f.cfg.Index.TTL, "ttl", 0, "`TIME` to keep a block after it was last routed or stored; 0 until it is removed")
	fs.IntVar(&f.cfg.Index.MaxBlocks, "max-blocks", 0, "`NUMBER` of blocks of a model to keep, over all ranks; 0 for all")
	fs.Float64Var(&f.cfg.Index.PruneRatio, "prune-ratio", 0.8, "`SHARE` of --max-blocks that is left when there were more")
	fs.BoolVar(&f.cfg.Index.ClearWorker, "clear-worker", false, "an event that clears a rank clears all of its worker, as in Dynamo 1.0")
	return cmd
}

// indexFlags is what the command line says about an index service.
type indexFlags struct {
	listen     string
	restore    []string
	dump       string
	record     string
	maxRestore stator.Size
	cfg        indexserver.Config
}

// check refuses what the flags cannot mean.
func (f *indexFlags) check() error {
	x := &f.cfg.Index
	switch {
	case x.TTL < 0:
		return fmt.Errorf("--ttl: expected at least 0s, got %s", x.TTL)
	case f.cfg.FrequencyWindow < 0:
		return fmt.Errorf("--frequency-window: expected at least 0s, got %s", f.cfg.FrequencyWindow)
	case x.MaxBlocks < 0:
		return fmt.Errorf("--max-blocks: expected at least 0, got %d", x.MaxBlocks)
	case !(x.PruneRatio > 0 && x.PruneRatio <= 1):
		return fmt.Errorf("--prune-ratio: expected a number above 0 and up to 1, got %v", x.PruneRatio)
	case f.maxRestore < 1:
		return fmt.Errorf("--max-restore-bytes: expected a size of at least 1, got %s", f.maxRestore)
	}
	return nil
}

// serveIndex serves until a signal ends it.
func serveIndex(ctx context.Context, f *indexFlags, stdout, stderr io.Writer) (failure error) {
	f.cfg.Version, _ = buildVersion()
	f.cfg.Log = slog.New(slog.NewTextHandler(stderr, nil))
	f.cfg.MaxRestore = int64(f.maxRestore)
	if f.record != "" {
		record, err := kvlog.Start(kvlog.Options{Path: f.record})
		if err != nil {
			return fmt.Errorf("--record: %w", err)
		}
		f.cfg.Record = record
		defer func() { failure = errors.Join(failure, closeRecord(record, stderr)) }()
	}
	index := indexserver.New(f.cfg)
	restored, err := f.load(ctx, index, stderr)
	if err != nil {
		return fmt.Errorf("--restore: %w", err)
	}
	l, err := net.Listen("tcp", f.listen)
	if err != nil {
		return listenError(err, nil)
	}
	if !isLoopback(l.Addr()) {
		fmt.Fprintf(stderr, "warning: %s is reachable from other machines and has no keys: anyone can ask it and change it\n", l.Addr())
	}
	// Until here a signal ends the process, and nothing is lost by it.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	index.Start()
	defer index.Close()
	srv := &http.Server{Handler: index, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()

	base := "http://" + reachable(l.Addr().String())
	fmt.Fprintf(stdout, "listening on http://%s\n%s\n\n  curl %s/workers\n\n", l.Addr(), restored, base)
	select {
	case err := <-failed:
		return err
	case <-signals:
	}
	drain, stop := context.WithTimeout(context.WithoutCancel(ctx), stator.DefaultConfig().Drain.Timeout)
	defer stop()
	drained := make(chan error, 1)
	go func() { drained <- srv.Shutdown(drain) }()
	select {
	case err = <-drained:
	case <-signals:
		return errors.New("stopped at once; nothing was written")
	}
	if f.dump != "" {
		err = errors.Join(err, writeDump(index, f.dump))
	}
	return err
}

// closeRecord ends a recording, and says what is missing from it.
func closeRecord(r *kvlog.Recorder, stderr io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := r.Close(ctx); err != nil {
		return fmt.Errorf("--record: %w", err)
	}
	if n := r.Stats().Dropped; n > 0 {
		fmt.Fprintf(stderr, "warning: %s missing from the record, because the disk could not keep up\n", count(int(n), "event"))
	}
	return nil
}

// load takes the first dump in that can be had, and says what it was. Only a file
// has to be there, and not even that if it is written at the end.
func (f *indexFlags) load(ctx context.Context, index *indexserver.Server, stderr io.Writer) (string, error) {
	for _, from := range f.restore {
		remote := strings.HasPrefix(from, "http://") || strings.HasPrefix(from, "https://")
		done, err := restoreFrom(ctx, index, from, remote)
		switch {
		case err == nil:
			return fmt.Sprintf("restored %s of %s from %s", count(done.Blocks, "block"), count(done.Ranks, "rank"), from), nil
		case remote:
			fmt.Fprintf(stderr, "warning: nothing restored: %v\n", err)
		case errors.Is(err, fs.ErrNotExist) && from == f.dump:
		default:
			return "", err
		}
	}
	return "the index is empty", nil
}

func restoreFrom(ctx context.Context, index *indexserver.Server, from string, remote bool) (done indexserver.Restored, err error) {
	var r io.ReadCloser
	if remote {
		r, err = indexserver.OpenDump(ctx, from)
	} else {
		r, err = os.Open(from)
	}
	if err != nil {
		return done, err
	}
	defer r.Close()
	if done, err = index.Restore(r); err != nil {
		return done, fmt.Errorf("%s: %w", from, err)
	}
	return done, nil
}

// writeDump writes a dump to a file, which is replaced once all is written.
func writeDump(index *indexserver.Server, file string) (err error) {
	tmp, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*")
	if err != nil {
		return fmt.Errorf("--dump: %w", err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("--dump: %w", err)
			_ = os.Remove(tmp.Name()) // the first error says more
		}
	}()
	if err = index.Dump(tmp); err == nil {
		err = tmp.Sync()
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), file)
}

// isLoopback reports whether only this machine can reach an address.
func isLoopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}
