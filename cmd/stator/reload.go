package main

import (
	"context"
	"log/slog"
	"os"
	"reflect"
	"time"

	"github.com/stator-ai/stator"
)

// reloadInterval is how often it is looked whether the configuration file has changed.
const reloadInterval = 2 * time.Second

// reloader has a running server follow the engines of its configuration file. All else
// in the file needs a restart.
type reloader struct {
	src  source
	cfg  stator.Config // that the server was made from
	set  func([]stator.EngineConfig) error
	log  *slog.Logger
	last os.FileInfo // of the file when it was last read
}

// run looks at the file from time to time, and when told to, until ctx ends.
func (r *reloader) run(ctx context.Context, now <-chan os.Signal) {
	ticker := time.NewTicker(reloadInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-now:
			r.reload()
		case <-ticker.C:
			if r.changed() {
				r.reload()
			}
		}
	}
}

// changed reports whether the file is another than when it was last looked at. One that
// is not there is being replaced.
func (r *reloader) changed() bool {
	info, err := os.Stat(r.src.file)
	if err != nil {
		return false
	}
	before := r.last
	r.last = info
	return before != nil && (!os.SameFile(before, info) || before.Size() != info.Size() || !before.ModTime().Equal(info.ModTime()))
}

// reload reads the file and has the server follow it. A file that is wrong changes
// nothing.
func (r *reloader) reload() {
	cfg, err := load(r.src)
	if err != nil {
		r.log.Error("configuration is not reloaded", "file", r.src.file, "error", err)
		return
	}
	if err := r.set(cfg.Engines); err != nil {
		r.log.Error("configuration is not reloaded", "file", r.src.file, "error", err)
		return
	}
	r.log.Info("engines reloaded", "file", r.src.file, "engines", len(cfg.Engines))
	if !sameButEngines(r.cfg, cfg) {
		r.log.Warn("settings besides engines have changed, which takes effect after a restart", "file", r.src.file)
	}
}

// sameButEngines reports whether two configurations differ in nothing but engines.
func sameButEngines(a, b stator.Config) bool {
	a.Engines, b.Engines = nil, nil
	a.Hub, b.Hub = stator.HubConfig{}, stator.HubConfig{} // completed from the environment
	return reflect.DeepEqual(a, b)
}
