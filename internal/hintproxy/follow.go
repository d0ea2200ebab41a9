package hintproxy

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stator-ai/stator/trie"
)

// followInterval is how often it is looked whether a trie has changed.
const followInterval = 2 * time.Second

// follower is the trie in a file as it is at present. One that cannot be read changes
// nothing. Find and FindPlain are safe for concurrent use.
type follower struct {
	path    string
	log     *slog.Logger
	read    func(path string) (*trie.Trie, error) // trie.Load
	current atomic.Pointer[trie.Trie]
	last    os.FileInfo   // of the file when it was last read; nil if it was not there
	done    chan struct{} // run has ended

	mu sync.Mutex // never held while the file is read
	at TrieStats
}

// newFollower reads the file.
func newFollower(path string, log *slog.Logger) *follower {
	f := &follower{path: path, log: log, read: trie.Load, done: make(chan struct{}), at: TrieStats{Path: path}}
	if info, err := os.Stat(path); err == nil {
		f.last = info
	}
	f.load()
	return f
}

// Find returns the prediction that the current trie has.
func (f *follower) Find(path []string, callIndex int) (*trie.Prediction, bool) {
	return f.current.Load().Find(path, callIndex)
}

// FindPlain is Find as NeMo Agent Toolkit has it.
func (f *follower) FindPlain(path []string, callIndex int) (*trie.Prediction, bool) {
	return f.current.Load().FindPlain(path, callIndex)
}

// run looks at the file from time to time, until ctx ends. A file system that does not
// answer can make that take longer.
func (f *follower) run(ctx context.Context) {
	defer close(f.done)
	ticker := time.NewTicker(followInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if f.changed() {
				f.load()
			}
		}
	}
}

// changed reports whether the file is another than when it was last looked at. One that is
// not there is being replaced.
func (f *follower) changed() bool {
	info, err := os.Stat(f.path)
	if err != nil {
		return false
	}
	before := f.last
	f.last = info
	return before == nil || !os.SameFile(before, info) || before.Size() != info.Size() || !before.ModTime().Equal(info.ModTime())
}

// load takes the trie in the file, if there is one.
func (f *follower) load() {
	t, err := f.read(f.path)
	if err != nil {
		f.mu.Lock()
		f.at.Error = err.Error()
		f.mu.Unlock()
		text := "the prediction trie cannot be read; calls are not predicted until it can be"
		if f.current.Load() != nil {
			text = "the prediction trie cannot be read; the one before it stays"
		}
		f.log.LogAttrs(context.Background(), slog.LevelWarn, text, slog.String("path", f.path), slog.Any("error", err))
		return
	}
	f.mu.Lock()
	f.at.Error, f.at.Loaded = "", time.Now()
	if f.current.Swap(t) != nil {
		f.at.Reloads++
	}
	f.mu.Unlock()
	f.log.LogAttrs(context.Background(), slog.LevelInfo, "prediction trie loaded", slog.String("path", f.path))
}

func (f *follower) stats() *TrieStats {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.at
	return &s
}
