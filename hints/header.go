package hints

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stator-ai/stator/nvext"
)

// Headers by which a program in any language tells the hint proxy, and one service the
// next, where a call stands. They are not for engines.
const (
	// HeaderRun names the run.
	HeaderRun = "X-Stator-Run"
	// HeaderWorkflowRun is NeMo Agent Toolkit's name for it.
	HeaderWorkflowRun = "Workflow-Run-Id"
	// HeaderPath is the functions that the call is made in, from the outermost, each
	// escaped as a part of a URL's path, with slashes between them.
	HeaderPath = "X-Stator-Path"
	// HeaderFunctionID names the invocation of the last of them, so that calls of one are
	// told from those of the next.
	HeaderFunctionID = "X-Stator-Function-Id"
	// HeaderBranch tells parallel branches apart.
	HeaderBranch = "X-Stator-Branch"
	// HeaderRemaining is how many calls follow the one that has it.
	HeaderRemaining = nvext.HeaderNATRemainingLLMCalls
)

// The longest path that a header may have, in names and in bytes.
const (
	maxPath      = 64
	maxPathBytes = 4096
)

// FromHeader returns a context that knows what headers say about the call: the run
// (X-Stator-Run, Workflow-Run-Id, or the session headers of Dynamo, Claude Code, Codex and
// OpenCode), the functions and the branch that it is made in, and what the X-Prefix- and
// X-Nat- headers say that package nvext reads: prefix id, latency sensitivity, and what is
// expected. What makes no sense counts as absent; ignored names it.
func FromHeader(ctx context.Context, h http.Header) (out context.Context, ignored []string) {
	ext, wrong := nvext.ApplyHeaders(nil, h.Get)
	for _, w := range wrong {
		ignored = append(ignored, w.Path)
	}
	if ext == nil {
		ext = &nvext.NvExt{}
	}
	run := id(h, HeaderRun, &ignored)
	if run == "" {
		run = id(h, HeaderWorkflowRun, &ignored)
	}
	if s := ext.Session; run == "" && s != nil {
		run = s.ID
		if s.AgentID != "" && s.AgentID != s.ID {
			run += "/" + s.AgentID // whose prompts are not those of the others
		}
	}
	if run != "" {
		ctx = WithRun(ctx, run)
	}
	function := id(h, HeaderFunctionID, &ignored)
	names, ok := parsePath(h.Get(HeaderPath))
	if !ok {
		ignored = append(ignored, HeaderPath)
	}
	if function != "" && names == nil { // of which function, nobody says
		ignored = append(ignored, HeaderFunctionID)
	}
	ctx = within(ctx, names, function)
	if b := id(h, HeaderBranch, &ignored); b != "" {
		ctx = WithBranch(ctx, b)
	}
	ctx = withExt(ctx, ext.AgentHints, &ignored)
	return withRemaining(ctx, h, &ignored), ignored
}

// withRemaining takes over how many calls follow.
func withRemaining(ctx context.Context, h http.Header, ignored *[]string) context.Context {
	v := h.Get(HeaderRemaining)
	if v == "" {
		return ctx
	}
	if n, err := strconv.ParseUint(v, 10, 31); err == nil {
		return WithRemainingCalls(ctx, int(n))
	}
	if !slices.Contains(*ignored, HeaderRemaining) {
		*ignored = append(*ignored, HeaderRemaining)
	}
	return ctx
}

// id returns the value of a header that names something.
func id(h http.Header, name string, ignored *[]string) string {
	v := h.Get(name)
	if len(v) > nvext.MaxIDBytes {
		*ignored = append(*ignored, name)
		return ""
	}
	return v
}

// parsePath reads the names of functions, nil if there are none.
func parsePath(path string) ([]string, bool) {
	if path == "" {
		return nil, true
	}
	if len(path) > maxPathBytes {
		return nil, false
	}
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if len(parts) > maxPath {
		return nil, false
	}
	for i, p := range parts {
		name, err := url.PathUnescape(p)
		if err != nil || name == "" {
			return nil, false
		}
		parts[i] = name
	}
	return parts, true
}

// within returns a context inside of functions that somebody else has entered. Without an
// id, calls with the same run and path are taken to be of one invocation.
func within(ctx context.Context, names []string, id string) context.Context {
	if len(names) == 0 {
		return ctx
	}
	return with(ctx, func(s *scope) {
		s.path, s.caller = names, ""
		s.counted = digest(s.run + "\x00" + strings.Join(names, "\x00") + "\x00" + id)
		if s.function, s.unnamed = id, id == ""; s.unnamed {
			s.function = s.counted
		}
	})
}

// withExt takes hints over that were said in headers.
func withExt(ctx context.Context, a *nvext.AgentHints, ignored *[]string) context.Context {
	if a == nil {
		return ctx
	}
	if a.PrefixID != nil {
		ctx = WithPrefixID(ctx, *a.PrefixID)
	}
	if l := a.LatencySensitivity; l != nil {
		level := int(*l)
		if float64(level) != *l { // a level is a whole number
			*ignored = append(*ignored, nvext.HeaderPrefixLatencySensitivity)
			level = 0
		}
		ctx = WithLatencySensitivity(ctx, level)
	}
	sane := func(n uint64, header string) bool {
		if n >= 1 && n <= maxCount {
			return true
		}
		*ignored = append(*ignored, header)
		return false
	}
	if a.OSL != nil && sane(uint64(*a.OSL), nvext.HeaderPrefixOSL) {
		ctx = WithOutputTokens(ctx, int(*a.OSL))
	}
	if a.IATMS != nil && sane(*a.IATMS, nvext.HeaderPrefixIAT) {
		ctx = WithInterArrival(ctx, time.Duration(*a.IATMS)*time.Millisecond)
	}
	if n := a.TotalRequests; n != nil {
		ctx = with(ctx, func(s *scope) { s.expect.total = int(min(*n, maxCount)) })
	}
	return ctx
}

// ToHeader writes what ctx knows of its calls to headers that [FromHeader] reads, so that
// the calls of a service that is asked count as those of this run. What ctx does not know
// is left as it is.
func ToHeader(ctx context.Context, h http.Header) {
	s := scopeOf(ctx)
	if s.run != "" {
		h.Set(HeaderRun, s.run)
	}
	if len(s.path) > 0 {
		names := make([]string, len(s.path))
		for i, name := range s.path {
			names[i] = url.PathEscape(name)
		}
		h.Set(HeaderPath, strings.Join(names, "/"))
		if !s.unnamed {
			h.Set(HeaderFunctionID, s.function)
		}
	}
	if s.branch != "" {
		h.Set(HeaderBranch, s.branch)
	}
	if s.prefix != "" {
		h.Set(nvext.HeaderPrefixID, s.prefix)
	}
	if level, manual := s.latency(); manual {
		h.Set(nvext.HeaderPrefixLatencySensitivity, strconv.Itoa(level))
	}
	if e := s.expect; e.osl > 0 {
		h.Set(nvext.HeaderPrefixOSL, strconv.Itoa(e.osl))
	}
	if e := s.expect; e.iat > 0 {
		h.Set(nvext.HeaderPrefixIAT, strconv.FormatInt(max(e.iat.Milliseconds(), 1), 10))
	}
	switch e := s.expect; {
	case e.hasRemaining:
		h.Set(HeaderRemaining, strconv.Itoa(e.remaining))
	case e.total > 0:
		h.Set(nvext.HeaderPrefixTotalRequests, strconv.Itoa(e.total))
	}
}
