package hintproxy

import (
	"crypto/tls"
	"net"
	"net/http"
	"time"
)

// connectTimeout is how long a connection to the upstream may take to be made. Nothing
// after that is bounded: an answer may take an hour to begin.
const connectTimeout = 10 * time.Second

// upstream sends requests on as they are.
type upstream struct{ *http.Transport }

func newUpstream(verify bool) *upstream {
	dialer := &net.Dialer{Timeout: connectTimeout, KeepAlive: 15 * time.Second}
	t := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           dialer.DialContext,
		TLSHandshakeTimeout:   connectTimeout,
		ForceAttemptHTTP2:     true,
		DisableCompression:    true, // an answer is as compressed as the client asked for
		MaxIdleConnsPerHost:   256,
		IdleConnTimeout:       90 * time.Second,
		ExpectContinueTimeout: time.Second,
	}
	if !verify {
		t.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
	}
	return &upstream{t}
}

// upstreamError is that of a request that was, or would have been, sent.
type upstreamError struct{ err error }

func (e *upstreamError) Error() string { return e.err.Error() }

func (e *upstreamError) Unwrap() error { return e.err }

// RoundTrip sends a request. All its errors are upstreamErrors.
func (u *upstream) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.GetBody != nil && req.Header["Expect"] != nil {
		// The body is here: there is nothing to wait for, and nothing saved by it.
		out := *req
		out.Header = req.Header.Clone()
		out.Header.Del("Expect")
		req = &out
	}
	resp, err := u.Transport.RoundTrip(req)
	if err != nil {
		return nil, &upstreamError{err}
	}
	return resp, nil
}
