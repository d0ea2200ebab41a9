package stator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/stator-ai/stator/internal/metrics"
	"github.com/stator-ai/stator/internal/trace"
)

// recorder writes the request trace. It is made with the server and opens its
// file when that starts.
type recorder struct {
	cfg     TraceConfig
	log     *slog.Logger
	metrics *metrics.Set
	writer  *trace.Writer // nil until open
}

// open opens the file and says so.
func (r *recorder) open() error {
	var err error
	r.writer, err = trace.Open(trace.Options{
		Path:     r.cfg.Out,
		MaxBytes: int64(r.cfg.MaxBytes),
		MaxFiles: r.cfg.MaxFiles,
		Zstd:     r.cfg.Zstd,
		Written:  r.metrics.TraceRows,
		Dropped:  r.metrics.TraceRowsDropped,
		OnError: func(err error) {
			switch {
			case err == nil:
				r.log.Info("trace is written again")
			case errors.Is(err, trace.ErrPanic):
				r.log.Error("a bug: a row is incomplete", "error", err)
			case errors.Is(err, trace.ErrBehind):
				r.log.Error("trace does not keep up, rows are dropped or have no hashes", "error", err)
			case errors.Is(err, trace.ErrRotate):
				r.log.Warn("trace file cannot be put aside", "error", err)
			default:
				r.log.Error("trace cannot be written, rows are dropped", "error", err)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("trace.out: %w", err)
	}
	r.log.Info("recording requests", "file", r.writer.Path(), "text", r.cfg.Text)
	return nil
}

// Write hands a row over without waiting for the disk.
func (r *recorder) Write(row *trace.Row) bool { return r.writer != nil && r.writer.Write(row) }

// Do has something done before the rows that are written later.
func (r *recorder) Do(f func(), bytes int64) bool { return r.writer != nil && r.writer.Do(f, bytes) }

// close writes what is left.
func (r *recorder) close() error {
	if r.writer == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	return r.writer.Close(ctx)
}
