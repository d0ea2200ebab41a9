package hub

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// DefaultEndpoint is the Hub that is meant when none is given.
const DefaultEndpoint = "https://huggingface.co"

// ErrOffline is behind the errors about files that are not in the cache while the
// network is not to be used.
var ErrOffline = errors.New("offline")

// parallel is how many small files are downloaded at once.
const parallel = 4

// Client fetches the files of models from a Hub server into a cache on disk. Its
// fields are not changed after the first use; then it is safe for concurrent use,
// by several processes on one cache, too.
type Client struct {
	// Endpoint is the server's URL; empty means [DefaultEndpoint].
	Endpoint string
	// Token is sent to the endpoint, and to no other host, if it is not empty. It
	// appears in no error.
	Token string
	// CacheDir is the cache's directory, in the layout of Hugging Face's libraries.
	// It is created when needed.
	CacheDir string
	// HTTP makes the requests, except that redirects are followed by rules of our
	// own; nil means [http.DefaultClient].
	HTTP *http.Client
	// Progress hears of downloads; nil means that nobody does.
	Progress Progress
	// Waiting hears of each failure that is followed by another try, and of the
	// pause before it, with the calls of Progress: never two at once. Nil means
	// that nobody does.
	Waiting func(err error, pause time.Duration)
	// Offline is whether to use the cache alone.
	Offline bool

	wait     func(context.Context, time.Duration) error // before another try; nil means sleep
	stall    time.Duration                              // how long a server may be silent; 0 means the usual
	maxBytes int64                                      // of a file; 0 means MaxFileBytes
	symlink  func(target, path string) error            // nil means os.Symlink
}

// Progress is told how much of a file has come: at its beginning, now and then,
// and at its end, when done equals total. Total is -1 while it is not known. A
// file that is in the cache is not reported; one of which a part is there begins
// with that part done. Calls come from several goroutines, never two at once.
type Progress func(file string, done, total int64)

// String returns the endpoint and the cache, and not the token.
func (c *Client) String() string { return fmt.Sprintf("hub %s cached in %s", c.endpoint(), c.CacheDir) }

// GoString is String, so that no way of printing a client shows its token.
func (c *Client) GoString() string { return c.String() }

func (c *Client) endpoint() string {
	if c.Endpoint == "" {
		return DefaultEndpoint
	}
	return strings.TrimRight(c.Endpoint, "/")
}

// Fetch returns the files of a repository (org/name) at a revision: a branch, a
// tag or a commit; empty means [DefaultRevision]. Only what the cache lacks is
// downloaded; when it lacks nothing, a list of names is all that is asked for. An
// offline client asks for nothing.
//
// When the Hub cannot be reached, or refuses, and the cache holds the revision with
// a tokenizer, what it holds is returned with Stale set. Temporary failures are
// tried again, a few times and with pauses; a broken download goes on where it
// broke, in this call or a later one.
//
// The error is an [ErrNotFound], [ErrAccess], [ErrOffline], [ErrNoTokenizer],
// [ErrChecksum] or [ErrTooLarge] where that is what happened, and the context's
// own when that ended.
func (c *Client) Fetch(ctx context.Context, repo, revision string) (*Files, error) {
	if revision == "" {
		revision = DefaultRevision
	}
	f, err := c.fetch(ctx, repo, revision)
	if err != nil {
		return nil, fmt.Errorf("model %.120s: %w", repo, err)
	}
	return f, nil
}

func (c *Client) fetch(ctx context.Context, repo, revision string) (*Files, error) {
	t, err := c.target(repo, revision)
	if err != nil {
		return nil, err
	}
	cached, missing := t.cached()
	if c.Offline {
		if missing != nil {
			return nil, fmt.Errorf("%w, and not in the cache: %w", ErrOffline, missing)
		}
		return t.read(cached)
	}
	l, err := t.listOr(ctx, missing == nil)
	if err != nil {
		if missing != nil || ctx.Err() != nil || errors.Is(err, errRevision) {
			return nil, err
		}
		f, readErr := t.read(cached)
		if readErr != nil {
			return nil, errors.Join(err, readErr)
		}
		f.Stale = err
		return f, nil
	}
	if err := t.download(ctx, l); err != nil {
		return nil, err
	}
	return t.read(l.commit)
}

// listOr asks for the files of the revision. With something to fall back on,
// nobody is made to wait for a server that is not there.
func (t *target) listOr(ctx context.Context, fallback bool) (*listing, error) {
	if !fallback {
		return t.list(ctx, maxTries)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, fallbackTimeout, errStalled)
	defer cancel()
	return t.list(ctx, 1)
}

// target is a repository at a revision: here, and on the Hub.
type target struct {
	*Client
	endpoint *url.URL
	repo     string
	revision string
	local    repository

	mu sync.Mutex // one call of Progress at a time
}

func (c *Client) target(repo, revision string) (*target, error) {
	if err := checkRepo(repo); err != nil {
		return nil, err
	}
	if err := checkRevision(revision); err != nil {
		return nil, err
	}
	if c.CacheDir == "" {
		return nil, errors.New("cache directory: expected a path, got none")
	}
	for _, r := range c.Token {
		if r <= ' ' || r > '~' {
			return nil, errors.New("token: expected letters, digits and punctuation only")
		}
	}
	u, err := url.Parse(c.endpoint())
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("endpoint: expected an http or https URL")
	}
	return &target{Client: c, endpoint: u, repo: repo, revision: revision, local: repositoryOf(c.CacheDir, repo)}, nil
}

// cached returns the commit that the cache has for the revision, tokenizer
// included.
func (t *target) cached() (string, error) {
	commit, err := t.local.lookup(t.revision)
	if err != nil {
		return "", err
	}
	for _, name := range []string{tokenizerName, tiktokenName} {
		if present(t.local.file(commit, name)) {
			return commit, nil
		}
	}
	return "", fmt.Errorf("%s: %w%s", t.local.snapshot(commit), ErrNoTokenizer, insteadIn(t.local.snapshot(commit)))
}

// read reads the snapshot of a commit.
func (t *target) read(commit string) (*Files, error) {
	f, err := readDir(t.local.snapshot(commit))
	if err != nil {
		return nil, err
	}
	f.Source = t.repo + "@" + commit
	return f, nil
}

// download brings the listed files into the cache, the tokenizers last, and then
// says that this is what the revision is.
func (t *target) download(ctx context.Context, l *listing) error {
	// A cache that has everything may be one that cannot be written to.
	complete := !slices.ContainsFunc(l.files, func(name string) bool { return !present(t.local.file(l.commit, name)) })
	var last []string
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, name := range l.files {
		if name == tokenizerName || name == tiktokenName {
			last = append(last, name)
			continue
		}
		g.Go(func() error { return t.file(gctx, l.commit, name) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, name := range last {
		if err := t.file(ctx, l.commit, name); err != nil {
			return err
		}
	}
	if err := t.local.setRef(t.revision, l.commit); err != nil && !complete {
		return fmt.Errorf("cache: %w", err)
	}
	return nil
}

// file brings one file into the snapshot.
func (t *target) file(ctx context.Context, commit, name string) error {
	if present(t.local.file(commit, name)) {
		return nil
	}
	e, err := t.head(ctx, commit, name)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := t.blob(ctx, e); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	symlink := t.symlink
	if symlink == nil {
		symlink = os.Symlink
	}
	if err := t.local.link(commit, name, e.etag, symlink); err != nil {
		return fmt.Errorf("%s: cache: %w", name, err)
	}
	return nil
}

// report calls Progress.
func (t *target) report(file string, done, total int64) {
	if t.Progress == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Progress(file, done, total)
}

// reportPause calls Waiting.
func (t *target) reportPause(err error, pause time.Duration) {
	if t.Waiting == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Waiting(err, pause)
}

// address returns the URL of a file at a commit.
func (t *target) address(commit, name string) *url.URL {
	u := t.endpoint.JoinPath(t.repo, "resolve", commit)
	for part := range strings.SplitSeq(name, "/") {
		u = u.JoinPath(url.PathEscape(part))
	}
	return u
}

// wanted returns those of a repository's files that we know, in the order of the
// table, templates first.
func wanted(names []string) []string {
	var out []string
	has := make(map[string]bool, len(names))
	for _, n := range names {
		dir, base := path.Split(n)
		if _, ok := templateName(base); ok && dir == templateDir+"/" && fs.ValidPath(n) && !has[n] {
			out = append(out, n)
		}
		has[n] = true
	}
	for _, k := range known {
		if has[k.name] {
			out = append(out, k.name)
		}
	}
	return out
}
