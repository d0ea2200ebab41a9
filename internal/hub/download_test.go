package hub

import (
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// ranges returns the ranges that requests asked for.
func ranges(reqs []request) []string {
	var out []string
	for _, r := range reqs {
		out = append(out, r.Range)
	}
	return out
}

// once answers the first request that matches.
func once(match func(r *http.Request, where string) bool, answer func(http.ResponseWriter, *http.Request)) func(http.ResponseWriter, *http.Request, string) bool {
	var done atomic.Bool
	return func(w http.ResponseWriter, r *http.Request, where string) bool {
		if !match(r, where) || done.Swap(true) {
			return false
		}
		answer(w, r)
		return true
	}
}

func fromCDN(r *http.Request, where string) bool { return where == "cdn" }

func TestDownloadResumes(t *testing.T) {
	h := newTestHub(t)
	text := h.commits[commitA][tokenizerName]
	h.intercept(once(fromCDN, func(w http.ResponseWriter, r *http.Request) { breakAfter(w, text, 1<<20+7) }))
	c := h.client()
	got, err := c.Fetch(t.Context(), testRepo, "main")
	if err != nil {
		t.Fatal(err)
	}
	diffFiles(t, got, h.want(commitA))
	if got, want := ranges(h.seen(gets("cdn"))), []string{"", fmt.Sprintf("bytes=%d-", 1<<20+7)}; !slices.Equal(got, want) {
		t.Errorf("asked for ranges %q, want %q", got, want)
	}
}

// TestDownloadGoesOn has a connection that breaks more often than there are tries,
// but always after some progress.
func TestDownloadGoesOn(t *testing.T) {
	h := newTestHub(t)
	text := strings.Repeat("0123456789abcdef", 10*getOn/16)
	h.commits[commitA][tokenizerName] = text
	h.intercept(func(w http.ResponseWriter, r *http.Request, where string) bool {
		var from int
		fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from)
		if where != "cdn" || len(text)-from <= getOn {
			return false
		}
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(text)-1, len(text)))
		w.Header().Set("Content-Length", fmt.Sprint(len(text)-from))
		w.WriteHeader(http.StatusPartialContent)
		w.Write([]byte(text[from : from+getOn]))
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	// The first answer of a whole file is 200.
	inner := h.before
	h.intercept(func(w http.ResponseWriter, r *http.Request, where string) bool {
		if where == "cdn" && r.Header.Get("Range") == "" {
			breakAfter(w, text, getOn)
		}
		return inner(w, r, where)
	})
	got, err := h.client().Fetch(t.Context(), testRepo, "main")
	if err != nil {
		t.Fatal(err)
	}
	diffFiles(t, got, h.want(commitA))
	if n := len(h.seen(gets("cdn"))); n != 10 {
		t.Errorf("%d requests, want 10", n)
	}
}

// TestDownloadEnds has a server that ignores ranges and always breaks: progress
// that is lost again is none.
func TestDownloadEnds(t *testing.T) {
	h := newTestHub(t)
	text := h.commits[commitA][tokenizerName]
	h.intercept(func(w http.ResponseWriter, r *http.Request, where string) bool {
		if where == "cdn" {
			breakAfter(w, text, 2<<20)
		}
		return false
	})
	c := h.client()
	if _, err := c.Fetch(t.Context(), testRepo, "main"); err == nil || !strings.Contains(err.Error(), "tokenizer.json: ") {
		t.Errorf("error %v", err)
	}
	if n := len(h.seen(gets("cdn"))); n != 1+maxTries {
		t.Errorf("%d requests, want %d", n, 1+maxTries)
	}
	r := c.local(testRepo)
	if present(r.file(commitA, tokenizerName)) || present(r.ref("main")) {
		t.Error("a snapshot without tokenizer has a ref")
	}
}

// TestDownloadResumesLater has a download that is cancelled and one that another
// program left, and a next client that goes on.
func TestDownloadResumesLater(t *testing.T) {
	h := newTestHub(t)
	text := h.commits[commitA][tokenizerName]
	etag := h.etag(tokenizerName, text)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	h.intercept(once(fromCDN, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(text)))
		w.Write([]byte(text[:2<<20]))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	c := h.client()
	c.Progress = func(file string, done, _ int64) {
		if file == tokenizerName && done == 2<<20 {
			cancel()
		}
	}
	if _, err := c.Fetch(ctx, testRepo, "main"); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v", err)
	}
	blob := c.local(testRepo).blob(etag)
	if info, err := os.Stat(blob + ".incomplete"); err != nil || info.Size() != 2<<20 {
		t.Fatalf("what is left: %v, %v", info, err)
	}
	h.seen(anything)

	c.Progress = nil
	if _, err := c.Fetch(t.Context(), testRepo, "main"); err != nil {
		t.Fatal(err)
	}
	if got, want := ranges(h.seen(gets("cdn"))), []string{fmt.Sprintf("bytes=%d-", 2<<20)}; !slices.Equal(got, want) {
		t.Errorf("asked for ranges %q, want %q", got, want)
	}

	for _, tt := range []struct {
		name string
		part string
		want []string
	}{
		{"good part", text[:100], []string{"bytes=100-"}},
		{"all of it", text, nil},
		{"another file's part", strings.Repeat("x", 100), []string{"bytes=100-", ""}},
		{"longer than the file", text + "x", []string{""}},
		{"empty", "", []string{""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := h.client()
			blob := c.local(testRepo).blob(etag)
			if err := os.MkdirAll(filepath.Dir(blob), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(blob+".0a1b2c3d.incomplete", []byte(tt.part), 0o666); err != nil {
				t.Fatal(err)
			}
			got, err := c.Fetch(t.Context(), testRepo, "main")
			if err != nil {
				t.Fatal(err)
			}
			diffFiles(t, got, h.want(commitA))
			if got := ranges(h.seen(gets("cdn"))); !slices.Equal(got, tt.want) {
				t.Errorf("asked for ranges %q, want %q", got, tt.want)
			}
			for _, path := range tree(t, c.CacheDir) {
				if strings.Contains(path, ".incomplete") {
					t.Errorf("left behind: %s", path)
				}
			}
		})
	}
}

func TestDownloadChecksum(t *testing.T) {
	for _, name := range []string{tokenizerName, "config.json"} {
		t.Run(name, func(t *testing.T) {
			h := newTestHub(t)
			text := h.commits[commitA][name]
			h.etags[name] = strings.Repeat("0", len(h.etag(name, text)))
			c := h.client()
			_, err := c.Fetch(t.Context(), testRepo, "main")
			if !errors.Is(err, ErrChecksum) || !strings.Contains(err.Error(), name) {
				t.Errorf("error %v", err)
			}
			n := len(h.seen(func(r request) bool {
				return r.Method == http.MethodGet && strings.HasSuffix(r.Path, "/"+name) && (r.Where == "cdn") == h.large[name]
			}))
			if n != 2 {
				t.Errorf("%d downloads, want 2", n)
			}
			r := c.local(testRepo)
			for _, path := range []string{r.blob(h.etags[name]), r.blob(h.etags[name]) + ".incomplete", r.file(commitA, name), r.ref("main")} {
				if _, err := os.Lstat(path); err == nil {
					t.Errorf("%s is there", path)
				}
			}
		})
	}
}

func TestDownloadSize(t *testing.T) {
	h := newTestHub(t)
	text := h.commits[commitA][tokenizerName]
	for _, tt := range []struct {
		name   string
		answer func(w http.ResponseWriter)
		is     error
	}{
		{"shorter than said", func(w http.ResponseWriter) { fmt.Fprint(w, text[:10]) }, ErrChecksum},
		{"longer than said", func(w http.ResponseWriter) { fmt.Fprint(w, text+"x") }, ErrChecksum},
		{"longer, no length", func(w http.ResponseWriter) { w.(http.Flusher).Flush(); fmt.Fprint(w, text+"x") }, ErrChecksum},
		{"compressed", func(w http.ResponseWriter) { w.Header().Set("Content-Encoding", "br"); fmt.Fprint(w, text) }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h.intercept(func(w http.ResponseWriter, r *http.Request, where string) bool {
				if where != "cdn" {
					return false
				}
				tt.answer(w)
				return true
			})
			if _, err := h.client().Fetch(t.Context(), testRepo, "main"); err == nil || tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("error %v", err)
			}
		})
	}
	h.intercept(nil)
	c := h.client()
	c.maxBytes = int64(len(text)) - 1
	if _, err := c.Fetch(t.Context(), testRepo, "main"); !errors.Is(err, ErrTooLarge) {
		t.Errorf("error %v", err)
	}
	h.seen(anything)
	// The same, found out only while it comes.
	h.intercept(func(w http.ResponseWriter, r *http.Request, where string) bool {
		if where == "cdn" {
			w.(http.Flusher).Flush()
			fmt.Fprint(w, text)
			return true
		}
		if r.Method == http.MethodHead && strings.HasSuffix(r.URL.Path, tokenizerName) {
			w.Header().Set("X-Linked-Etag", h.etag(tokenizerName, text))
			w.Header().Set("Location", h.cdn.URL)
			w.WriteHeader(http.StatusFound)
			return true
		}
		return false
	})
	if _, err := c.Fetch(t.Context(), testRepo, "main"); !errors.Is(err, ErrTooLarge) {
		t.Errorf("error %v", err)
	}
	if n := len(h.seen(gets("cdn"))); n != 1 {
		t.Errorf("%d downloads, want 1", n)
	}
	for _, path := range tree(t, c.CacheDir) {
		if strings.Contains(path, ".incomplete") {
			t.Errorf("left behind: %s", path)
		}
	}
}

// TestDownloadTags has servers whose etags are not the Hub's.
func TestDownloadTags(t *testing.T) {
	for _, tt := range []struct {
		name, tag       string
		ranges, ifRange string // of the request after the break
	}{
		{"plain SHA-1", "", "bytes=7-", ""},
		{"of its own", "5f3a-b0", "bytes=7-", `"5f3a-b0"`},
		{"weak", `W/"5f3a-b0"`, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newTestHub(t)
			h.large = nil
			text := h.commits[commitA][tokenizerName]
			h.etags[tokenizerName] = tt.tag
			if tt.tag == "" {
				h.etags[tokenizerName] = fmt.Sprintf("%x", sha1.Sum([]byte(text)))
			}
			mine := func(r *http.Request, where string) bool {
				return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, tokenizerName)
			}
			h.intercept(once(mine, func(w http.ResponseWriter, r *http.Request) { breakAfter(w, text, 7) }))
			got, err := h.client().Fetch(t.Context(), testRepo, "main")
			if err != nil {
				t.Fatal(err)
			}
			diffFiles(t, got, h.want(commitA))
			reqs := h.seen(func(r request) bool {
				return r.Method == http.MethodGet && strings.HasSuffix(r.Path, tokenizerName)
			})
			if len(reqs) != 2 || reqs[1].Range != tt.ranges || reqs[1].IfRange != tt.ifRange {
				t.Errorf("requests %+v", reqs)
			}
		})
	}
}

// TestDownloadRanges has servers that do not keep to the range asked for.
func TestDownloadRanges(t *testing.T) {
	for name, answer := range map[string]func(w http.ResponseWriter, text string){
		"ignores it": func(w http.ResponseWriter, text string) { fmt.Fprint(w, text) },
		"another range": func(w http.ResponseWriter, text string) {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes 3-%d/%d", len(text)-1, len(text)))
			w.WriteHeader(http.StatusPartialContent)
			fmt.Fprint(w, text[3:])
		},
		"not satisfiable": func(w http.ResponseWriter, text string) {
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newTestHub(t)
			text := h.commits[commitA][tokenizerName]
			var asked atomic.Int32
			h.intercept(func(w http.ResponseWriter, r *http.Request, where string) bool {
				if where != "cdn" {
					return false
				}
				switch asked.Add(1) {
				case 1:
					breakAfter(w, text, 100)
				case 2:
					answer(w, text)
				default:
					fmt.Fprint(w, text)
				}
				return true
			})
			got, err := h.client().Fetch(t.Context(), testRepo, "main")
			if err != nil {
				t.Fatal(err)
			}
			diffFiles(t, got, h.want(commitA))
			want := []string{"", "bytes=100-", ""}
			if name == "ignores it" {
				want = want[:2]
			}
			if got := ranges(h.seen(gets("cdn"))); !slices.Equal(got, want) {
				t.Errorf("asked for ranges %q, want %q", got, want)
			}
		})
	}
}

func TestRetry(t *testing.T) {
	header := func(pairs ...string) http.Header {
		h := http.Header{}
		for i := 0; i < len(pairs); i += 2 {
			h.Set(pairs[i], pairs[i+1])
		}
		return h
	}
	within := func(a, b time.Duration) func(time.Duration) bool {
		return func(d time.Duration) bool { return a <= d && d <= b }
	}
	usual := []func(time.Duration) bool{
		within(500*time.Millisecond, 625*time.Millisecond), within(time.Second, 1250*time.Millisecond),
		within(2*time.Second, 2500*time.Millisecond), within(4*time.Second, 5*time.Second),
	}
	exactly := func(d time.Duration) []func(time.Duration) bool { return []func(time.Duration) bool{within(d, d)} }
	for _, tt := range []struct {
		name   string
		status int
		header http.Header
		times  int
		waits  []func(time.Duration) bool
		ok     bool
	}{
		{"unavailable twice", 503, nil, 2, usual[:2], true},
		{"always unavailable", 502, nil, 99, usual, false},
		{"too many requests", 429, header("Retry-After", "7"), 1, exactly(7 * time.Second), true},
		{"come back at once", 429, header("Retry-After", "0"), 1, usual[:1], true},
		{"the Hub's limits", 429, header("RateLimit", `"resolvers";r=0;t=55`), 1, exactly(55 * time.Second), true},
		{"not this limit", 429, header("RateLimit", `"resolvers";r=3;t=55`), 1, usual[:1], true},
		{"come back tomorrow", 429, header("Retry-After", "86400"), 1, nil, false},
		{"not found", 404, nil, 1, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newTestHub(t)
			var n atomic.Int32
			h.intercept(func(w http.ResponseWriter, r *http.Request, where string) bool {
				if int(n.Add(1)) > tt.times {
					return false
				}
				for k, v := range tt.header {
					w.Header()[k] = v
				}
				w.WriteHeader(tt.status)
				return true
			})
			c := h.client()
			var waits []time.Duration
			c.wait = func(_ context.Context, d time.Duration) error {
				waits = append(waits, d)
				return nil
			}
			_, err := c.Fetch(t.Context(), testRepo, "main")
			if (err == nil) != tt.ok {
				t.Errorf("error %v", err)
			}
			right := len(waits) == len(tt.waits)
			for i := range waits {
				right = right && tt.waits[i](waits[i])
			}
			if !right {
				t.Errorf("waited %v", waits)
			}
		})
	}
}

func TestRetryAfterDate(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		now.Add(9 * time.Second).Format(http.TimeFormat): 9 * time.Second,
		now.Add(-time.Hour).Format(http.TimeFormat):      0,
		"-5":                   0,
		"soon":                 0,
		"99999999999999999999": 0,
	} {
		if got := after(http.Header{"Retry-After": {value}}, now); got != want {
			t.Errorf("Retry-After %q: %v, want %v", value, got, want)
		}
	}
}

func TestWaitIsCancelled(t *testing.T) {
	h := newTestHub(t)
	h.intercept(func(w http.ResponseWriter, r *http.Request, where string) bool {
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	c := h.client()
	why := errors.New("the user gave up")
	c.wait = func(ctx context.Context, d time.Duration) error {
		cancel(why)
		return sleep(ctx, time.Hour)
	}
	if _, err := c.Fetch(ctx, testRepo, "main"); !errors.Is(err, why) {
		t.Errorf("error %v", err)
	}
}

func TestStall(t *testing.T) {
	h := newTestHub(t)
	text := h.commits[commitA][tokenizerName]
	h.intercept(once(fromCDN, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(text)))
		w.Write([]byte(text[:1000]))
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	c := h.client()
	c.stall = 200 * time.Millisecond
	got, err := c.Fetch(t.Context(), testRepo, "main")
	if err != nil {
		t.Fatal(err)
	}
	diffFiles(t, got, h.want(commitA))
	if got, want := ranges(h.seen(gets("cdn"))), []string{"", "bytes=1000-"}; !slices.Equal(got, want) {
		t.Errorf("asked for ranges %q, want %q", got, want)
	}
}

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if err := sleep(t.Context(), time.Minute); err != nil || time.Since(start) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start = time.Now()
		if err := sleep(ctx, time.Minute); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// silent is a network where nobody answers.
type silent struct{ waited []time.Duration }

func (s *silent) RoundTrip(r *http.Request) (*http.Response, error) {
	start := time.Now()
	<-r.Context().Done()
	s.waited = append(s.waited, time.Since(start))
	return nil, r.Context().Err()
}

// TestSilentHub: a server that says nothing is given up soon, and each try is
// announced.
func TestSilentHub(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		net := &silent{}
		var pauses []time.Duration
		c := &Client{Endpoint: "http://hub", CacheDir: dir, HTTP: &http.Client{Transport: net}}
		c.Waiting = func(err error, pause time.Duration) {
			if !errors.Is(err, errStalled) {
				t.Errorf("announced after %v", err)
			}
			pauses = append(pauses, pause)
		}
		start := time.Now()
		if _, err := c.Fetch(t.Context(), testRepo, "main"); !errors.Is(err, errStalled) {
			t.Errorf("error %v", err)
		}
		if want := slices.Repeat([]time.Duration{10 * time.Second}, maxTries); !slices.Equal(net.waited, want) {
			t.Errorf("waited %v for answers, want %v", net.waited, want)
		}
		total := 10 * time.Second * maxTries
		for _, p := range pauses {
			total += p
		}
		if took := time.Since(start); len(pauses) != maxTries-1 || took != total {
			t.Errorf("announced pauses %v, took %v", pauses, took)
		}
	})
}

// TestWatchdog: bytes keep a request alive, silence ends it.
func TestWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := (&Client{}).watch(t.Context(), stallTimeout)
		defer w.stop()
		r := w.reader(strings.NewReader("abc"))
		for range 3 {
			time.Sleep(stallTimeout - 1)
			if _, err := r.Read(make([]byte, 1)); err != nil || w.ctx.Err() != nil {
				t.Fatal(err, w.ctx.Err())
			}
		}
		time.Sleep(stallTimeout + 1)
		if got := context.Cause(w.ctx); got != errStalled {
			t.Errorf("ended by %v", got)
		}
	})
}
