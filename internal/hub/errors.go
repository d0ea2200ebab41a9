package hub

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Errors that callers may want to tell apart.
var (
	// ErrNotFound: the Hub has no such repository, revision or file.
	ErrNotFound = errors.New("not found")
	// ErrAccess: the Hub does not give the files to this token, or to nobody
	// without one.
	ErrAccess = errors.New("no access")
	// ErrChecksum: what came is not what the Hub said would come.
	ErrChecksum = errors.New("checksum differs")
	// ErrTooLarge: a file has more than [MaxFileBytes].
	ErrTooLarge = fmt.Errorf("larger than %d bytes", MaxFileBytes)
)

// errRevision marks the [ErrNotFound] about a revision of a repository that is
// there: what the cache has under its name is no longer true.
var errRevision = fmt.Errorf("revision %w", ErrNotFound)

// StatusError is an answer that is no success. It is also an [ErrNotFound] or an
// [ErrAccess] where the Hub says so.
type StatusError struct {
	Status  int
	Code    string        // the Hub's word for it, such as GatedRepo, if it said one
	Message string        // the server's explanation, if it gave one
	After   time.Duration // when to come back, if it said so

	kind error  // ErrNotFound, ErrAccess, errRevision or nil
	hint string // what to do about it
}

func (e *StatusError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "the server answered %d", e.Status)
	if text := http.StatusText(e.Status); text != "" {
		b.WriteString(" " + text)
	}
	if e.Message != "" {
		b.WriteString(" (" + e.Message + ")")
	}
	if e.hint != "" {
		b.WriteString(": " + e.hint)
	}
	if e.After > 0 {
		fmt.Fprintf(&b, "; it asks to come back after %v", e.After)
	}
	return b.String()
}

// Unwrap returns what kind of refusal it was, or nil.
func (e *StatusError) Unwrap() error { return e.kind }

// refusal turns an answer that is no success into an error that says what to do.
func (t *target) refusal(resp *http.Response) error {
	e := &StatusError{
		Status:  resp.StatusCode,
		Code:    t.clean(resp.Header.Get("X-Error-Code")),
		Message: t.clean(resp.Header.Get("X-Error-Message")),
		After:   after(resp.Header, time.Now()),
	}
	page := t.shown(t.endpoint.JoinPath(t.repo))
	switch denied := e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden; {
	case e.Code == "RevisionNotFound":
		e.kind, e.hint = errRevision, fmt.Sprintf("%s has no revision %s", t.repo, t.revision)
	case e.Code == "EntryNotFound":
		e.kind, e.hint = ErrNotFound, "the file is listed but not there"
	case e.Code == "GatedRepo" && t.Token == "":
		e.kind, e.hint = ErrAccess, fmt.Sprintf("the model is gated: accept its terms at %s and set HF_TOKEN to a token of yours", page)
	case e.Code == "GatedRepo":
		e.kind, e.hint = ErrAccess, fmt.Sprintf("the model is gated: its terms at %s have to be accepted by the user whose token this is, and the token may read gated models", page)
	case denied && t.Token == "":
		e.kind, e.hint = ErrAccess, "there is no such model, or it is private: check the name, or set HF_TOKEN to a token that may read it"
	case denied:
		e.kind, e.hint = ErrAccess, "the token does not work here or may not read the model: check HF_TOKEN"
	case e.Status == http.StatusNotFound && e.Code == "RepoNotFound":
		e.kind, e.hint = ErrNotFound, "there is no such model, or it is private and the token may not read it"
	case e.Status == http.StatusNotFound:
		e.kind, e.hint = ErrNotFound, fmt.Sprintf("is %s a Hub?", t.shown(t.endpoint))
	}
	return e
}

// after returns how long a server asks us to stay away, or 0.
func after(h http.Header, now time.Time) time.Duration {
	if v := h.Get("Retry-After"); v != "" {
		if n, err := strconv.Atoi(v); err == nil && n >= 0 {
			return time.Duration(min(n, 1<<30)) * time.Second
		}
		if at, err := http.ParseTime(v); err == nil {
			return max(at.Sub(now), 0)
		}
	}
	// The Hub's own limits come as "resolvers";r=0;t=55: nothing left for 55 s.
	left, reset := -1, 0
	for field := range strings.SplitSeq(h.Get("RateLimit"), ";") {
		key, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		if n, err := strconv.Atoi(strings.TrimSpace(value)); err == nil && n >= 0 {
			switch strings.TrimSpace(key) {
			case "r":
				left = n
			case "t":
				reset = min(n, 1<<30)
			}
		}
	}
	if left == 0 {
		return time.Duration(reset) * time.Second
	}
	return 0
}

// brokenError is a connection that failed or broke: worth another try.
type brokenError struct{ err error }

func (e *brokenError) Error() string { return e.err.Error() }
func (e *brokenError) Unwrap() error { return e.err }

func broken(err error) error { return &brokenError{err} }

// failure completes an error of a request to u. The error of a context that ended
// is the context's; one of the connection says where to, without the parts of the
// URL that are nobody's business.
func (t *target) failure(ctx context.Context, w *watchdog, u *url.URL, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if fe := (*fileError)(nil); errors.As(err, &fe) {
		return err
	}
	if cause := context.Cause(w.ctx); cause != nil {
		return broken(fmt.Errorf("%s: %w", t.shown(u), cause))
	}
	if ue := (*url.Error)(nil); errors.As(err, &ue) {
		err = ue.Err
		if t.Token != "" && strings.Contains(err.Error(), t.Token) {
			err = errors.New(t.clean(err.Error())) // net/http quotes an answer that it cannot parse
		}
		return broken(fmt.Errorf("%s: %w", t.shown(u), err))
	}
	return err
}

// worthRetry reports whether the same request may succeed later.
func worthRetry(err error) bool {
	if se := (*StatusError)(nil); errors.As(err, &se) {
		switch se.Status {
		case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
			http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return se.After <= maxPause
		}
		return false
	}
	if be := (*brokenError)(nil); !errors.As(err, &be) {
		return false
	}
	dns, cert := (*net.DNSError)(nil), (*tls.CertificateVerificationError)(nil)
	return !(errors.As(err, &dns) && dns.IsNotFound) && !errors.As(err, &cert)
}
