package hints

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync/atomic"
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
	base := newPatient(cfg.RequestTimeout, cfg.VerifySSL)
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

// patient is a transport that gives up after some time without progress: of connecting, of
// sending, of waiting for an answer, and of waiting for more of it. Each request has that
// time for itself, also on a connection that it shares with others.
type patient struct {
	*http.Transport
	timeout time.Duration
}

func newPatient(timeout time.Duration, verify bool) *patient {
	t := &http.Transport{
		DialContext:           newDialer(timeout).DialContext,
		Proxy:                 http.ProxyFromEnvironment,
		ForceAttemptHTTP2:     true,
		MaxIdleConns:          100,
		MaxIdleConnsPerHost:   32,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   timeout,
		ResponseHeaderTimeout: timeout,
		ExpectContinueTimeout: time.Second,
	}
	if !verify {
		t.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
	}
	return &patient{t, timeout}
}

// RoundTrip sends a request and has the answer's body be waited for no longer than that.
func (p *patient) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	resp, err := p.Transport.RoundTrip(req.WithContext(ctx))
	if err != nil {
		cancel(nil)
		return nil, err
	}
	if resp.StatusCode == http.StatusSwitchingProtocols { // whose body is written to as well
		context.AfterFunc(req.Context(), func() { cancel(nil) })
		return resp, nil
	}
	resp.Body = newPatientBody(resp.Body, p.timeout, cancel)
	return resp, nil
}

// patientBody is a body each read of which takes a bounded time.
type patientBody struct {
	io.ReadCloser
	timeout time.Duration
	late    *time.Timer
	expired atomic.Bool
	cancel  context.CancelCauseFunc
}

func newPatientBody(body io.ReadCloser, timeout time.Duration, cancel context.CancelCauseFunc) *patientBody {
	b := &patientBody{ReadCloser: body, timeout: timeout, cancel: cancel}
	b.late = time.AfterFunc(timeout, func() {
		b.expired.Store(true)
		cancel(os.ErrDeadlineExceeded)
	})
	b.late.Stop()
	return b
}

func (b *patientBody) Read(p []byte) (int, error) {
	b.late.Reset(b.timeout)
	n, err := b.ReadCloser.Read(p)
	b.late.Stop()
	if err != nil {
		if err != io.EOF && b.expired.Load() {
			err = fmt.Errorf("no more of the answer came for %s: %w", b.timeout, os.ErrDeadlineExceeded)
		}
		b.cancel(nil)
	}
	return n, err
}

func (b *patientBody) Close() error {
	b.late.Stop()
	err := b.ReadCloser.Close()
	b.cancel(nil)
	return err
}

// timedDialer makes connections on which a write takes no longer than to make them.
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

// timedConn is a connection whose writes take a bounded time each.
type timedConn struct {
	net.Conn
	timeout time.Duration
}

func (c *timedConn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.timeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}
