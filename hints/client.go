package hints

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/stator-ai/stator/trie"
)

// NewClient returns a client with the settings of cfg, which it validates; options go
// before them. Connecting, sending, and waiting for the answer or for more of it may take
// cfg.RequestTimeout each, so that a stream may take longer in all. Unless cfg.Enable is
// set, requests are sent as they are.
func NewClient(cfg Config, opts ...Option) (*http.Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("hints: %w", err)
	}
	base := newHTTPTransport(cfg.RequestTimeout, cfg.VerifySSL)
	if !cfg.Enable {
		return &http.Client{Transport: base}, nil
	}
	return &http.Client{Transport: NewTransport(base, append(cfg.Options(), opts...)...)}, nil
}

// Options returns the settings as options of a [Transport]: all but Enable, the timeout
// and VerifySSL.
func (c *Config) Options() []Option {
	return []Option{
		WithStatic(c.TotalRequests, c.OutputTokens, c.InterArrivalMS),
		WithCacheControl(c.CachePin, c.CacheMode),
		WithMaxSensitivity(c.MaxSensitivity),
		WithPolarity(c.Polarity),
		WithCarrier(c.Carrier),
		WithFailurePolicy(c.FailurePolicy),
		WithCompat(c.Compat),
		WithTrieFile(c.TriePath),
	}
}

// loadTrie has predictions come from the configured file. Without it, there are none.
func (t *Transport) loadTrie() {
	if t.triePath == "" || t.lookup != nil {
		return
	}
	p, err := trie.Load(t.triePath)
	if err == nil {
		t.lookup = p
		return
	}
	text := "the prediction trie cannot be read; calls are not predicted"
	if errors.Is(err, fs.ErrNotExist) {
		text = "there is no prediction trie; calls are not predicted"
	}
	t.logger.LogAttrs(context.Background(), slog.LevelWarn, text,
		slog.String("path", t.triePath), slog.Any("error", err))
}

// newHTTPTransport returns a transport that gives up after that long without progress.
func newHTTPTransport(timeout time.Duration, verify bool) *http.Transport {
	t := &http.Transport{
		DialContext:           newDialer(timeout).DialContext,
		Proxy:                 http.ProxyFromEnvironment,
		ForceAttemptHTTP2:     true,
		MaxIdleConns:          100,
		MaxIdleConnsPerHost:   32,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   timeout,
		ExpectContinueTimeout: time.Second,
	}
	if !verify {
		t.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
	}
	return t
}

// timedDialer makes connections that take no longer for anything than to be made.
type timedDialer struct{ net.Dialer }

func newDialer(timeout time.Duration) *timedDialer {
	return &timedDialer{net.Dialer{Timeout: timeout}}
}

func (d *timedDialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := d.Dialer.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &timedConn{Conn: c, timeout: d.Timeout}, nil
}

// timedConn is a connection whose reads and writes take a bounded time each.
type timedConn struct {
	net.Conn
	timeout time.Duration
}

func (c *timedConn) Read(b []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.timeout)); err != nil {
		return 0, err
	}
	return c.Conn.Read(b)
}

// Write also moves the deadline of a read that waits already, as one does on a connection
// that was idle: it is the answer to this that it waits for now.
func (c *timedConn) Write(b []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(c.timeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}
