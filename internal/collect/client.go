package collect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// Options is how a [Client] reaches a server.
type Options struct {
	// URL is the base URL. A user and a password in it count unless User is set. Neither
	// these nor a token follow a redirect to another scheme, host or port.
	URL string
	// User and Password are for basic authentication; empty means none.
	User, Password string
	// TokenFile is a file with a bearer token. It is read for every request, so that it
	// may change. It excludes User.
	TokenFile string
	// CA are certificates in PEM to check the server's with, instead of the system's.
	CA []byte
	// Insecure leaves the server's certificate unchecked.
	Insecure bool
	// Timeout bounds each request; 0 means 30 seconds.
	Timeout time.Duration
}

const (
	defaultTimeout = 30 * time.Second
	healthTimeout  = 10 * time.Second

	// maxAnswer is how much of an answer is read.
	maxAnswer = 16 << 20
)

// Client asks a Prometheus server, or one that speaks like it. Safe for concurrent use.
type Client struct {
	base           *url.URL // without user and trailing slash
	shown          string   // for people, without user and password
	user, password string
	tokenFile      string
	timeout        time.Duration
	http           *http.Client
}

// NewClient returns a client. It does not connect.
func NewClient(o Options) (*Client, error) {
	if err := checkURL(o.URL); err != nil {
		return nil, err
	}
	u, err := url.Parse(strings.TrimRight(o.URL, "/"))
	if err != nil {
		return nil, errors.New("expected a base URL")
	}
	c := &Client{user: o.User, password: o.Password, tokenFile: o.TokenFile, timeout: o.Timeout}
	if u.User != nil && c.user == "" {
		c.user = u.User.Username()
		c.password, _ = u.User.Password()
	}
	if c.user != "" && c.tokenFile != "" {
		return nil, errors.New("expected a user or a bearer token, got both")
	}
	u.User = nil
	c.base, c.shown = u, u.String()
	if c.timeout <= 0 {
		c.timeout = defaultTimeout
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = concurrency
	t.TLSClientConfig = &tls.Config{InsecureSkipVerify: o.Insecure}
	if o.CA != nil {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(o.CA) {
			return nil, errors.New("expected certificates in PEM, found none")
		}
		t.TLSClientConfig.RootCAs = pool
	}
	c.http = &http.Client{Transport: t, CheckRedirect: c.checkRedirect}
	return c, nil
}

// URL returns the base URL without slashes at its end, and without user and password.
func (c *Client) URL() string { return c.shown }

// checkRedirect refuses to tell a password or a token to anybody else: the standard library
// only looks at the name of the host, so that they would reach any of its ports, and that
// without TLS.
func (c *Client) checkRedirect(req *http.Request, via []*http.Request) error {
	const most = 10
	switch {
	case len(via) >= most:
		return fmt.Errorf("stopped after %d redirects", most)
	case c.authenticates() && origin(req.URL) != origin(c.base):
		return fmt.Errorf("it redirects to %s, which is not sent the password or token: is that its base URL?", origin(req.URL))
	}
	return nil
}

// origin returns whom a URL leads to: scheme, host and port.
func origin(u *url.URL) string {
	host, port := strings.ToLower(u.Hostname()), u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + net.JoinHostPort(host, port)
}

// Query asks for an expression at a time, the server's now if it is the zero one. What the
// server refuses is a [*QueryError].
func (c *Client) Query(ctx context.Context, promql string, at time.Time) (*Answer, error) {
	params := url.Values{"query": {promql}}
	if !at.IsZero() {
		params.Set("time", formatTime(at))
	}
	body, err := c.get(ctx, "/api/v1/query", params)
	if err != nil {
		return nil, err
	}
	return parseAnswer(body)
}

// QueryRange asks for an expression at every step from start to end.
func (c *Client) QueryRange(ctx context.Context, promql string, start, end time.Time, step time.Duration) (*Answer, error) {
	body, err := c.get(ctx, "/api/v1/query_range", url.Values{
		"query": {promql}, "start": {formatTime(start)}, "end": {formatTime(end)}, "step": {formatDuration(step)},
	})
	if err != nil {
		return nil, err
	}
	return parseAnswer(body)
}

// Names returns which of the series there are at all around the time from start to end,
// whatever their labels.
func (c *Client) Names(ctx context.Context, names []string, start, end time.Time) (map[string]bool, error) {
	body, err := c.get(ctx, "/api/v1/label/__name__/values", url.Values{
		"match[]": {`{__name__=~"` + strings.Join(names, "|") + `"}`}, "start": {formatTime(start)}, "end": {formatTime(end)},
	})
	if err != nil {
		return nil, err
	}
	found, err := parseNames(body)
	if err != nil {
		return nil, err
	}
	out := make(map[string]bool, len(found))
	for _, name := range found {
		out[name] = true
	}
	return out, nil
}

// get returns the body of an answer with a status of success.
func (c *Client) get(ctx context.Context, path string, params url.Values) ([]byte, error) {
	ctx, stop := context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("no answer within %s", spoken(c.timeout)))
	defer stop()
	resp, err := c.do(ctx, path, params)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	success := resp.StatusCode >= 200 && resp.StatusCode < 300
	switch {
	case err != nil && success:
		return nil, transportError(ctx, err)
	case !success:
		var e envelope
		if json.Unmarshal(body, &e) != nil && resp.StatusCode != http.StatusNotFound && (isType(resp, "text/plain") || resp.Header.Get("Content-Type") == "") {
			// From what is in front of Prometheus, or from a server that speaks TLS only.
			e.Error, _, _ = strings.Cut(strings.TrimSpace(string(body)), "\n")
		}
		return nil, e.refusal(resp.StatusCode)
	case len(body) > maxAnswer:
		return nil, fmt.Errorf("expected an answer of at most %d MiB", maxAnswer>>20)
	}
	if isType(resp, "text/html") {
		return nil, errors.New("expected the JSON of Prometheus, got a web page: is this its base URL?")
	}
	return body, nil
}

// isType reports whether a response says that its body is of a type.
func isType(resp *http.Response, want string) bool {
	got, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return err == nil && got == want
}

// authenticates reports whether requests say who sends them.
func (c *Client) authenticates() bool { return c.user != "" || c.tokenFile != "" }

// do sends a request. The body of the response is the caller's to close.
func (c *Client) do(ctx context.Context, path string, params url.Values) (*http.Response, error) {
	u := *c.base
	u.Path += path
	u.RawQuery = params.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "stator")
	switch {
	case c.tokenFile != "":
		token, err := os.ReadFile(c.tokenFile)
		if err != nil {
			return nil, fmt.Errorf("bearer token: %w", err)
		}
		text := strings.TrimSpace(string(token))
		if text == "" || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
			return nil, fmt.Errorf("bearer token: expected one token in %s", c.tokenFile)
		}
		req.Header.Set("Authorization", "Bearer "+text)
	case c.user != "":
		req.SetBasicAuth(c.user, c.password)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, transportError(ctx, err)
	}
	return resp, nil
}

// transportFailure is an answer that did not come, or not to its end.
type transportFailure struct{ error }

func (e transportFailure) Unwrap() error { return e.error }

// transportError says why there is no answer, without the URL, which every query has
// another of.
func transportError(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return transportFailure{cause}
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return transportFailure{err}
}

func formatTime(t time.Time) string {
	return strconv.FormatFloat(unixSeconds(t), 'f', -1, 64)
}
