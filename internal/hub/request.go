package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// maxListing is the size of the largest description of a repository that is read.
const maxListing = 64 << 20

// maxHops bounds the redirects of one request.
const maxHops = 10

// userAgent is how we introduce ourselves.
const userAgent = "stator"

// listing is what the Hub says about a revision.
type listing struct {
	commit string
	files  []string // those we know
}

// list asks which commit the revision is at and which files that has.
func (t *target) list(ctx context.Context, tries int) (*listing, error) {
	u := t.endpoint.JoinPath("api/models", t.repo, "revision", url.PathEscape(t.revision))
	var answer struct {
		SHA      string `json:"sha"`
		Siblings []struct {
			Name string `json:"rfilename"`
		} `json:"siblings"`
	}
	err := t.retry(ctx, tries, func() error {
		return t.ask(ctx, question{method: http.MethodGet, url: u, stall: askTimeout}, func(resp *http.Response, body io.Reader) error {
			if resp.StatusCode != http.StatusOK {
				return t.refusal(resp)
			}
			data, err := io.ReadAll(io.LimitReader(body, maxListing+1))
			if err != nil {
				return broken(err)
			}
			if len(data) > maxListing {
				return fmt.Errorf("list of files: %w", ErrTooLarge)
			}
			if err := json.Unmarshal(data, &answer); err != nil {
				return fmt.Errorf("list of files: %s does not answer like a Hub: %w", t.shown(t.endpoint), err)
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	if !isCommit(answer.SHA) {
		return nil, fmt.Errorf("list of files: sha: expected a commit, got %.80q", t.clean(answer.SHA))
	}
	names := make([]string, 0, len(answer.Siblings))
	for _, s := range answer.Siblings {
		names = append(names, s.Name)
	}
	l := &listing{commit: answer.SHA, files: wanted(names)}
	if !slices.Contains(l.files, tokenizerName) && !slices.Contains(l.files, tiktokenName) {
		return nil, fmt.Errorf("revision %s: %w%s", t.revision, ErrNoTokenizer,
			instead(func(name string) bool { return slices.Contains(names, name) }))
	}
	if n := len(l.files) - len(known); n > maxTemplates {
		return nil, fmt.Errorf("revision %s: more than %d templates", t.revision, maxTemplates)
	}
	return l, nil
}

// entry is what the Hub says about a file before it is downloaded.
type entry struct {
	name string
	url  *url.URL
	etag string // names the blob
	tag  string // as the server wrote it
	size int64  // -1 if not said
}

// head asks about a file. Large files live elsewhere: then the redirect to them
// says all there is to know, and is not followed.
func (t *target) head(ctx context.Context, commit, name string) (*entry, error) {
	e := &entry{name: name, url: t.address(commit, name)}
	err := t.retry(ctx, maxTries, func() error {
		return t.ask(ctx, question{method: http.MethodHead, url: e.url, stall: askTimeout}, func(resp *http.Response, _ io.Reader) error {
			e.tag, e.size = resp.Header.Get("X-Linked-Etag"), -1
			switch {
			case e.tag != "" && resp.StatusCode < 400:
				if n, err := strconv.ParseInt(resp.Header.Get("X-Linked-Size"), 10, 64); err == nil && n >= 0 {
					e.size = n
				}
			case resp.StatusCode == http.StatusOK:
				e.tag, e.size = resp.Header.Get("ETag"), resp.ContentLength
			default:
				return t.refusal(resp)
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	e.etag = strings.Trim(strings.TrimPrefix(e.tag, "W/"), `"`)
	if !goodTag(e.etag) {
		return nil, fmt.Errorf("etag: expected one that can name a file, got %.80q; is %s a Hub?", t.clean(e.etag), t.shown(t.endpoint))
	}
	return e, nil
}

// goodTag reports whether an etag can be the name of a file.
func goodTag(s string) bool {
	for i := range len(s) {
		if !edge(s[i]) && (i == 0 || !strings.ContainsRune("-.=+", rune(s[i]))) {
			return false
		}
	}
	return s != "" && len(s) <= 128
}

// question is what ask asks.
type question struct {
	method string
	url    *url.URL
	header http.Header
	stall  time.Duration // how long the server may be silent
}

// ask makes a request and hands its answer to read, with a body that fails when
// the server falls silent. Redirects are followed, except one that already tells
// a HEAD request what it wants to know. The token goes to the endpoint only, which
// net/http's own rule does not promise: it would send it to another port or a
// subdomain.
func (t *target) ask(ctx context.Context, q question, read func(*http.Response, io.Reader) error) error {
	w := t.watch(ctx, q.stall)
	defer w.stop()
	client := http.Client{}
	if t.HTTP != nil {
		client = *t.HTTP
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	u := q.url
	for range maxHops {
		req, err := http.NewRequestWithContext(w.ctx, q.method, u.String(), nil)
		if err != nil {
			return fmt.Errorf("request: %w", err)
		}
		for k, v := range q.header {
			req.Header[k] = v
		}
		req.Header.Set("User-Agent", userAgent)
		req.Header.Set("Accept-Encoding", "identity") // sizes and ranges are those of the file
		if t.Token != "" && u.Scheme == t.endpoint.Scheme && u.Host == t.endpoint.Host {
			req.Header.Set("Authorization", "Bearer "+t.Token)
		}
		resp, err := client.Do(req)
		if err != nil {
			return t.failure(ctx, w, u, err)
		}
		w.alive()
		next, err := t.redirect(resp, u)
		if err != nil || next == nil || q.method == http.MethodHead && resp.Header.Get("X-Linked-Etag") != "" {
			if err == nil {
				err = read(resp, w.reader(resp.Body))
			}
			resp.Body.Close()
			return t.failure(ctx, w, u, err)
		}
		resp.Body.Close()
		u = next
	}
	return fmt.Errorf("%s: more than %d redirects", t.shown(t.endpoint), maxHops)
}

// redirect returns where an answer sends us, or nil if it does not.
func (t *target) redirect(resp *http.Response, from *url.URL) (*url.URL, error) {
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
	default:
		return nil, nil
	}
	next, err := from.Parse(resp.Header.Get("Location"))
	if err != nil || next.Host == "" {
		return nil, errors.New("redirect: location: expected a URL")
	}
	if next.Scheme != "https" && (next.Scheme != "http" || from.Scheme == "https") {
		return nil, fmt.Errorf("redirect to %s: expected https", t.shown(next))
	}
	return next, nil
}

// shown returns a URL for a message: without its query, which may hold a
// signature, and without a password.
func (t *target) shown(u *url.URL) string {
	short := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	return t.clean(short.String())
}

// clean makes a text from a server fit for a message: it is cut, printable, and
// does not show the token.
func (t *target) clean(s string) string {
	if t.Token != "" {
		s = strings.ReplaceAll(s, t.Token, "[token]")
	}
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
	if len(s) > 300 {
		s = s[:300] + "…"
	}
	return strings.ToValidUTF8(s, "")
}
