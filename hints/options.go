package hints

import (
	"log/slog"
	"mime"
	"net/http"
	"strings"

	"github.com/stator-ai/stator/trie"
)

// CachePin is how the blocks of a prompt are to be kept after the call.
type CachePin string

const (
	// Ephemeral keeps them for as long as the calls with their prefix should take.
	Ephemeral CachePin = "ephemeral"
	// NoPin asks for nothing.
	NoPin CachePin = ""
)

// CacheMode is which calls ask for their blocks to be kept.
type CacheMode string

const (
	// Always: all of them.
	Always CacheMode = "always"
	// FirstOnly: the first call of each prefix.
	FirstOnly CacheMode = "first_only"
)

// Polarity is which way priorities count.
type Polarity string

const (
	// Direct: the priority is the latency sensitivity, higher is more urgent. This is what
	// Stator takes, and Dynamo since 1.1.
	Direct Polarity = "direct"
	// Complement: the priority is the highest latency sensitivity less the call's own,
	// lower is more urgent. NeMo Agent Toolkit up to 1.7 sends this.
	Complement Polarity = "complement"
)

// Carrier is which members of nvext carry the hints.
type Carrier string

const (
	// NAT: all hints in agent_hints, and cache_control. For Stator, and for Dynamo up to
	// 1.1, which overlooks what it does not know.
	NAT Carrier = "nat"
	// Strict: only latency_sensitivity, osl and priority, for servers that refuse members
	// they do not know.
	Strict Carrier = "strict"
	// Annotations: as Strict, with the other hints as strings in annotations, where Dynamo's
	// Thompson processor looks for them.
	Annotations Carrier = "annotations"
)

// FailurePolicy is what becomes of a call with hints that are out of bounds.
type FailurePolicy string

const (
	// Open: the nearest value that is within them is sent, and counted.
	Open FailurePolicy = "open"
	// Closed: the call fails and nothing is sent.
	Closed FailurePolicy = "closed"
)

// Compat is whose values are sent where those of this package differ.
type Compat string

const (
	// NAT15 sends the remaining calls as their total, cuts fractions off, has predictions
	// of nothing out of bounds, looks calls up by the whole path and their number with
	// the prefix, and counts no latency sensitivity below 2.
	NAT15 Compat = "nat-1.5"
	// NAT18 is as NAT15, but a prediction of nothing gives way to the static value.
	NAT18 Compat = "nat-1.8"
)

// Lookup predicts. [*trie.Trie] is one. It is called from many goroutines.
type Lookup interface {
	// Find returns the prediction for a call in the function that the path leads to, which
	// is the callIndex-th in its invocation, from 1; false if there is none. With a [Compat]
	// a method FindPlain is called in its place, if there is one: see [trie.Trie.FindPlain].
	Find(path []string, callIndex int) (*trie.Prediction, bool)
}

// plainLookup is a Lookup that can also find as NeMo Agent Toolkit does.
type plainLookup interface {
	FindPlain(path []string, callIndex int) (*trie.Prediction, bool)
}

var _ plainLookup = (*trie.Trie)(nil)

// Option changes a [Transport] from its defaults, which are those of [DefaultConfig].
type Option func(*options)

type options struct {
	total, osl, iat int
	pin             CachePin
	mode            CacheMode
	maxSensitivity  int
	polarity        Polarity
	carrier         Carrier
	failure         FailurePolicy
	compat          Compat
	lookup          Lookup
	triePath        string
	match           func(*http.Request) bool
	maxBody         int64
	buffer          bool
	maxPrefixes     int
	recorder        *Recorder
	logger          *slog.Logger
	verbose         bool // the logger was given
}

// DefaultMaxBody is the longest body that hints are added to.
const DefaultMaxBody = 64 << 20

func defaultOptions() options {
	return options{
		total: defaultTotal, osl: defaultOSL, iat: defaultIAT,
		pin: Ephemeral, mode: Always,
		maxSensitivity: defaultMaxSensitivity,
		polarity:       Direct, carrier: NAT, failure: Open,
		match:       MatchLLM,
		maxBody:     DefaultMaxBody,
		maxPrefixes: DefaultMaxPrefixes,
		logger:      slog.Default(),
	}
}

// WithStatic sets what is said of calls that nothing else is known of: how many share a
// prefix, how many tokens an answer has, and how many milliseconds are between two. Values
// below 1 leave the defaults 10, 512 and 250.
func WithStatic(totalRequests, outputTokens, interArrivalMS int) Option {
	return func(o *options) {
		for _, v := range []struct {
			to    *int
			value int
		}{{&o.total, totalRequests}, {&o.osl, outputTokens}, {&o.iat, interArrivalMS}} {
			if v.value >= 1 {
				*v.to = v.value
			}
		}
	}
}

// WithLookup has predictions replace the static values.
func WithLookup(l Lookup) Option { return func(o *options) { o.lookup = l } }

// WithTrieFile has predictions come from a file, unless [WithLookup] says otherwise. If it
// cannot be read, that is logged and there are none. An empty path is no file.
func WithTrieFile(path string) Option { return func(o *options) { o.triePath = path } }

// WithCacheControl sets what is asked of caches, and for which calls.
func WithCacheControl(pin CachePin, mode CacheMode) Option {
	return func(o *options) { o.pin, o.mode = pin, mode }
}

// WithMaxSensitivity sets the highest latency sensitivity; 1000 by default. Less than 1
// leaves that.
func WithMaxSensitivity(n int) Option {
	return func(o *options) {
		if n >= 1 {
			o.maxSensitivity = n
		}
	}
}

// WithPolarity sets which way priorities count.
func WithPolarity(p Polarity) Option { return func(o *options) { o.polarity = p } }

// WithCarrier sets which members carry the hints.
func WithCarrier(c Carrier) Option { return func(o *options) { o.carrier = c } }

// WithFailurePolicy sets what becomes of a call whose hints are out of bounds.
func WithFailurePolicy(p FailurePolicy) Option { return func(o *options) { o.failure = p } }

// WithCompat sets whose values are sent. It changes neither polarity nor failure policy.
func WithCompat(c Compat) Option { return func(o *options) { o.compat = c } }

// WithMatch sets which requests get hints; [MatchLLM] is the default. Whatever it says, only
// a JSON object in the body can carry them.
func WithMatch(match func(*http.Request) bool) Option {
	return func(o *options) {
		if match != nil {
			o.match = match
		}
	}
}

// WithMaxBody sets the longest body that hints are added to; longer ones pass as they are.
func WithMaxBody(bytes int64) Option { return func(o *options) { o.maxBody = bytes } }

// WithBuffering has bodies of unknown length read before they are sent, up to the longest
// body. By default they pass as they are, because what writes them may wait for the answer.
func WithBuffering() Option { return func(o *options) { o.buffer = true } }

// WithMaxPrefixes bounds how many prefixes, and how many invocations of functions, calls
// are counted for at a time; [DefaultMaxPrefixes] by default. Less than 1 leaves that.
func WithMaxPrefixes(n int) Option {
	return func(o *options) {
		if n >= 1 {
			o.maxPrefixes = min(n, 1<<30)
		}
	}
}

// WithRecording has every call that matches recorded, besides those whose context has a
// [Recorder] of its own.
func WithRecording(r *Recorder) Option { return func(o *options) { o.recorder = r } }

// WithLogger sets where a transport says how it is set up and what it could not do. By
// default the latter goes to slog.Default(), and nothing else.
func WithLogger(l *slog.Logger) Option {
	return func(o *options) {
		if l != nil {
			o.logger, o.verbose = l, true
		}
	}
}

// MatchLLM matches calls of a model: a POST of JSON, or of nobody says what, to a path that
// ends in /chat/completions, /completions, /responses or /messages, and not to a thread.
func MatchLLM(r *http.Request) bool {
	if !MatchAll(r) || r.URL == nil {
		return false
	}
	path := r.URL.Path
	switch path[strings.LastIndexByte(path, '/')+1:] {
	case "completions", "responses":
	case "messages":
		if strings.Contains(path, "/threads/") { // adds one to a thread
			return false
		}
	default:
		return false
	}
	content := r.Header.Get("Content-Type")
	if content == "" || content == "application/json" {
		return true
	}
	kind, _, err := mime.ParseMediaType(content)
	return err == nil && (kind == "application/json" || strings.HasSuffix(kind, "+json"))
}

// MatchAll matches every POST, as NeMo Agent Toolkit does, embeddings included.
func MatchAll(r *http.Request) bool { return r.Method == http.MethodPost }
