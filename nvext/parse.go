package nvext

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Parse reads the value of a request's nvext member. JSON null is (nil, nil).
// The result shares no memory with raw.
//
// Errors: a *[FieldError] for a value of the wrong JSON type, out of its type's
// range, or missing where required; [ErrTooDeep]; otherwise a syntax error that
// names the byte. Of repeated keys the last wins.
//
// Unknown keys are kept. Some members are hints that can be done without, and are
// never refused: agent_hints.prefix_id, total_requests, osl and iat, annotations,
// and cache_control with its members. The numbers among them are read as they
// come: as an integer, as a float, as a string with either in it; osl and iat also
// as a category, see [ApplyHeaders]. What can not be read is dropped, a string
// without a meaning in cache_control is kept without effect, and Ignored lists
// both; strings in a list of annotations are kept whatever stands beside them.
func Parse(raw []byte) (*NvExt, error) {
	start := skipSpace(raw, 0)
	if at(raw, start) != '{' {
		raw, err := trimValue(raw)
		if err != nil || isNull(raw) {
			return nil, err
		}
		return nil, &FieldError{Path: "nvext", Want: wantObject, Got: describe(raw)}
	}
	// Check and split in one pass: token_data can be long.
	fs, end, err := splitObject(raw, start)
	if err != nil {
		return nil, err
	}
	if err := checkEnd(raw, end); err != nil {
		return nil, err
	}
	var d decoder
	e := d.nvext("nvext", fs)
	if d.err != nil {
		return nil, d.err
	}
	e.Ignored = d.ignored
	return e, nil
}

// FieldError reports a value that is not of its field's type. Error is a
// sentence fit to be shown to the client.
type FieldError struct {
	// Path is the JSON path, as "nvext.agent_hints.priority".
	Path string
	// Want is what the field takes, as "a signed 32-bit integer".
	Want string
	// Got is what came, with its value if that is short, as `string "abc"`;
	// empty when a required field is missing.
	Got string
}

// Error names the field, what it takes and what came.
func (e *FieldError) Error() string {
	if e.Got == "" {
		return fmt.Sprintf("%s is required and must be %s", e.Path, e.Want)
	}
	return fmt.Sprintf("%s must be %s, got %s", e.Path, e.Want, e.Got)
}

const (
	wantObject  = "an object"
	wantArray   = "an array"
	wantString  = "a string"
	wantBool    = "a boolean"
	wantInt32   = "a signed 32-bit integer"
	wantUint32  = "an unsigned 32-bit integer"
	wantUint64  = "an unsigned 64-bit integer"
	wantFloat64 = "a 64-bit floating point number"
	wantAction  = `"open" or "close"`

	reasonNotObject = "not an object"
	reasonNotArray  = "not an array"
	reasonNotString = "not a string"
	reasonNotNumber = "not a number"
	reasonNotCount  = "not an integer"
	reasonEmptyID   = "empty id"
	reasonLongID    = "id longer than 256 bytes"
	reasonType      = "unknown type"
	reasonTTL       = "not a duration"
)

// decoder reads values that have been scanned before. It remembers the first
// error and goes on, so that callers need not look after every field.
type decoder struct {
	ignored []Ignored
	err     error
}

func (d *decoder) nvext(path string, fs []field) *NvExt {
	e := new(NvExt)
	for _, f := range fs {
		switch string(f.key) {
		case "greed_sampling":
			e.GreedSampling = d.boolean(path, f)
		case "use_raw_prompt":
			e.UseRawPrompt = d.boolean(path, f)
		case "annotations":
			e.Annotations = d.annotations(path, f)
		case "backend_instance_id":
			e.BackendInstanceID = d.uint64(path, f)
		case "token_data":
			e.TokenData = d.uint32s(path, f)
		case "max_thinking_tokens":
			e.MaxThinkingTokens = d.uint32(path, f)
		case "extra_fields":
			e.ExtraFields = d.strings(path, f)
		case "prefill_worker_id":
			e.PrefillWorkerID = d.uint64(path, f)
		case "decode_worker_id":
			e.DecodeWorkerID = d.uint64(path, f)
		case "dp_rank":
			e.DPRank = d.uint32(path, f)
		case "prefill_dp_rank":
			e.PrefillDPRank = d.uint32(path, f)
		case "agent_hints":
			e.AgentHints = d.agentHints(join(path, f.key), f.value)
		case "request_timestamp_ms":
			e.RequestTimestampMS = d.float64(path, f)
		case "session_control":
			e.SessionControl = d.sessionControl(join(path, f.key), f.value)
		case "cache_control":
			e.CacheControl = d.cacheControl(join(path, f.key), f.value)
		case "cache_salt":
			e.CacheSalt = d.string(path, f)
		case "metadata_upload":
			e.MetadataUpload = d.metadataUpload(join(path, f.key), f.value)
		case "routing_constraints":
			e.RoutingConstraints = d.routingConstraints(join(path, f.key), f.value)
		case "router":
			e.Router = d.routerTargets(join(path, f.key), f.value)
		case "router_config_override":
			e.RouterConfigOverride = d.rawObject(path, f)
		case "allowed_worker_ids":
			e.AllowedWorkerIDs = d.uint64s(path, f)
		default:
			e.Unknown = append(e.Unknown, f.member())
		}
	}
	return e
}

func (d *decoder) agentHints(path string, raw []byte) *AgentHints {
	fs, ok := d.object(path, raw)
	if !ok {
		return nil
	}
	h := new(AgentHints)
	for _, f := range fs {
		switch string(f.key) {
		case "latency_sensitivity":
			h.LatencySensitivity = d.float64(path, f)
		case "osl":
			h.OSL = d.outputLength(path, f)
		case "priority":
			h.Priority = d.int32(path, f)
		case "strict_priority":
			h.StrictPriority = d.uint32(path, f)
		case "speculative_prefill":
			h.SpeculativePrefill = d.boolean(path, f)
		case "prefix_id":
			h.PrefixID = d.prefixID(path, f)
		case "total_requests":
			h.TotalRequests = d.totalRequests(path, f)
		case "iat":
			h.IATMS = d.interArrival(path, f)
		default:
			h.Unknown = append(h.Unknown, f.member())
		}
	}
	return h
}

func (d *decoder) sessionControl(path string, raw []byte) *SessionControl {
	fs, ok := d.object(path, raw)
	if !ok {
		return nil
	}
	s := &SessionControl{TimeoutSeconds: DefaultSessionTimeoutSeconds}
	var id *string
	for _, f := range fs {
		switch string(f.key) {
		case "session_id":
			id = d.string(path, f)
		case "action":
			s.Action = d.action(path, f)
		case "timeout":
			if v := d.uint64(path, f); v != nil {
				s.TimeoutSeconds = *v
			}
		default:
			s.Unknown = append(s.Unknown, f.member())
		}
	}
	if id == nil {
		d.fail(join(path, "session_id"), wantString, nil)
		return nil
	}
	s.SessionID = *id
	return s
}

func (d *decoder) action(path string, f field) SessionAction {
	if isNull(f.value) {
		return ""
	}
	if f.value[0] == '"' {
		switch a := SessionAction(unquote(f.value)); a {
		case SessionOpen, SessionClose:
			return a
		}
	}
	d.fail(join(path, f.key), wantAction, f.value)
	return ""
}

// cacheControl never fails. Strings without a meaning here are kept, since
// another server may know them, and noted.
func (d *decoder) cacheControl(path string, raw []byte) *CacheControl {
	if isNull(raw) {
		return nil
	}
	if raw[0] != '{' {
		d.ignore(path, reasonNotObject)
		return nil
	}
	c := new(CacheControl)
	for _, f := range fields(raw) {
		switch string(f.key) {
		case "type":
			c.Type = d.hintString(path, f)
			if c.Type != nil && *c.Type != CacheEphemeral {
				d.ignore(join(path, f.key), reasonType)
			}
		case "ttl":
			if _, ok := parseUint64(f.value); ok { // a bare number of seconds
				c.TTL = new(string(f.value))
			} else {
				c.TTL = d.hintString(path, f)
			}
			if c.TTL != nil {
				if _, ok := ParseTTL(*c.TTL, TTLOptions{}); !ok {
					d.ignore(join(path, f.key), reasonTTL)
				}
			}
		default:
			c.Unknown = append(c.Unknown, f.member())
		}
	}
	return c
}

func (d *decoder) metadataUpload(path string, raw []byte) *MetadataUpload {
	fs, ok := d.object(path, raw)
	if !ok {
		return nil
	}
	u := new(MetadataUpload)
	for _, f := range fs {
		switch string(f.key) {
		case "url":
			u.URL = d.string(path, f)
		default:
			u.Unknown = append(u.Unknown, f.member())
		}
	}
	return u
}

func (d *decoder) routingConstraints(path string, raw []byte) *RoutingConstraints {
	fs, ok := d.object(path, raw)
	if !ok {
		return nil
	}
	c := new(RoutingConstraints)
	for _, f := range fs {
		switch string(f.key) {
		case "required_taints":
			c.RequiredTaints = d.strings(path, f)
		case "preferred_taints":
			c.PreferredTaints = d.weights(join(path, f.key), f.value)
		default:
			c.Unknown = append(c.Unknown, f.member())
		}
	}
	return c
}

func (d *decoder) weights(path string, raw []byte) map[string]float64 {
	fs, ok := d.object(path, raw)
	if !ok {
		return nil
	}
	w := make(map[string]float64, len(fs))
	for _, f := range fs {
		if v, ok := parseFloat64(f.value); ok {
			w[string(f.key)] = v
		} else {
			d.fail(join(path, shorten(string(f.key))), wantFloat64, f.value)
		}
	}
	return w
}

func (d *decoder) routerTargets(path string, raw []byte) *RouterTargets {
	fs, ok := d.object(path, raw)
	if !ok {
		return nil
	}
	t := new(RouterTargets)
	for _, f := range fs {
		switch string(f.key) {
		case "ttft_target":
			t.TTFTTargetMS = d.float64(path, f)
		case "itl_target":
			t.ITLTargetMS = d.float64(path, f)
		default:
			t.Unknown = append(t.Unknown, f.member())
		}
	}
	return t
}

// describe names the kind of a value, and the value if it is short.
func describe(raw []byte) string {
	if len(raw) == 0 {
		return ""
	}
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "string " + strconv.Quote(shorten(unquote(raw)))
	case 't', 'f':
		return "boolean " + string(raw)
	case 'n':
		return "null"
	}
	return "number " + shorten(string(raw))
}

// shorten cuts s to a length that can stand in a message.
func shorten(s string) string {
	const most = 32
	if len(s) <= most {
		return s
	}
	s = s[:most]
	for len(s) > 0 && !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s + "…"
}

func join[T []byte | string](path string, key T) string { return path + "." + string(key) }

func isNull(raw []byte) bool { return raw[0] == 'n' }

// member is f as it is kept for writing back, in memory of its own.
func (f field) member() Member {
	return Member{Key: string(f.key), Value: bytes.Clone(f.value)}
}

func parseInt32(raw []byte) (int32, bool) {
	digits, neg := bytes.CutPrefix(raw, []byte("-"))
	v, ok := parseUint64(digits)
	switch {
	case !ok:
		return 0, false
	case neg && v <= 1<<31:
		return int32(-int64(v)), true
	case !neg && v < 1<<31:
		return int32(v), true
	}
	return 0, false
}

func parseFloat64(raw []byte) (float64, bool) {
	if c := raw[0]; c != '-' && !isDigit(c) {
		return 0, false
	}
	v, err := strconv.ParseFloat(string(raw), 64)
	return v, err == nil
}

// text is the content of a scalar hint: a string's value or a number's digits.
func text(raw []byte) (string, bool) {
	switch c := raw[0]; {
	case c == '"':
		return strings.TrimSpace(unquote(raw)), true
	case c == '-' || isDigit(c):
		return string(raw), true
	}
	return "", false
}

// rawObject keeps an object's text.
func (d *decoder) rawObject(path string, f field) json.RawMessage {
	if isNull(f.value) {
		return nil
	}
	if f.value[0] != '{' {
		d.fail(join(path, f.key), wantObject, f.value)
		return nil
	}
	return bytes.Clone(f.value)
}
