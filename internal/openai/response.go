package openai

// ChunkInfo is what one response object tells the control plane: a streamed
// chunk or a whole unary body.
type ChunkInfo struct {
	// NoChoices says that there is no choice, as in a chunk that is there for its
	// usage: the list is empty, null or missing.
	NoChoices bool
	// Deltas is the number of choices that carry generated content: text,
	// reasoning, a refusal or tool calls.
	Deltas int
	// TokenIDs is the number of generated token ids, where the engine sends
	// them; -1 where it does not.
	TokenIDs int
	// Finished is the number of choices with a finish reason.
	Finished int
	// Usage is nil when the object has none. Dynamo's workers call it completion_usage,
	// which goes before the usual member where both tell of a prompt.
	Usage *Usage
	// Tiers says where the engine found what it had of the prompt; nil if it does not.
	Tiers *TierBlocks
	// Error is the error member, nil when absent or null.
	Error Value
	// ID is the id member, without its quotes.
	ID Value
}

// Tokens returns the number of generated tokens: the ids if the engine sends them,
// else one for each choice with content.
func (info *ChunkInfo) Tokens() int {
	if info.TokenIDs >= 0 {
		return info.TokenIDs
	}
	return info.Deltas
}

// Usage is the token accounting of an engine.
type Usage struct {
	Prompt, Completion uint64
	Cached             uint64
	HasCached          bool // the engine said how many prompt tokens were cached
}

// TierBlocks is how many blocks of a prompt were found in each tier of an engine's cache.
type TierBlocks struct{ Device, Host, Disk uint64 }

// ParseChunk reads a response object. It decodes nothing but the members that
// ChunkInfo holds, and allocates only where there is a usage, an error or a
// breakdown of cached blocks. The slices in info alias data.
func ParseChunk(data []byte, info *ChunkInfo) error {
	*info = ChunkInfo{NoChoices: true, TokenIDs: -1}
	p := parser{b: data}
	p.space()
	if p.peek() != '{' {
		return p.want("an object")
	}
	p.i++
	var timings struct { // llama.cpp's, for servers whose usage lacks what they have
		cached uint64
		told   bool
	}
	var usage *Usage // the usual member
	for first := true; ; first = false {
		key, keyEnd, err := p.member(first)
		if err != nil {
			return err
		}
		if keyEnd == 0 {
			if info.Usage == nil || info.Usage.Prompt == 0 && usage != nil {
				info.Usage = usage
			}
			if u := info.Usage; u != nil && !u.HasCached && timings.told {
				u.Cached, u.HasCached = timings.cached, true
			}
			return p.end()
		}
		start := p.i
		switch string(data[key:keyEnd]) {
		case `"choices"`:
			err = info.choices(&p)
		case `"usage"`:
			usage, err = p.usage()
		case `"completion_usage"`:
			info.Usage, err = p.usage()
		case `"nvext"`:
			info.Tiers, err = p.tiers()
		case `"timings"`:
			timings.cached, timings.told, err = p.uintMember(`"cache_n"`)
		case `"error"`:
			info.Error, err = p.value()
		case `"id"`:
			if err = p.skip(); err == nil && data[start] == '"' {
				info.ID = data[start+1 : p.i-1]
			}
		default:
			err = p.skip()
		}
		if err != nil {
			return err
		}
	}
}

// value moves over the value at the cursor and returns it, nil for null.
func (p *parser) value() (Value, error) {
	start := p.i
	if err := p.skip(); err != nil {
		return nil, err
	}
	if v := Value(p.b[start:p.i]); v.Present() {
		return v, nil
	}
	return nil, nil
}

func (info *ChunkInfo) choices(p *parser) error {
	if p.peek() != '[' {
		info.NoChoices = p.peek() == 'n'
		return p.skip()
	}
	p.i++
	for first := true; ; first = false {
		more, err := p.element(first)
		if err != nil || !more {
			info.NoChoices = first
			return err
		}
		if p.peek() == '{' {
			err = info.choice(p)
		} else {
			err = p.skip()
		}
		if err != nil {
			return err
		}
	}
}

func (info *ChunkInfo) choice(p *parser) error {
	p.i++
	content := false
	for first := true; ; first = false {
		key, keyEnd, err := p.member(first)
		if err != nil {
			return err
		}
		if keyEnd == 0 {
			break
		}
		var found bool
		switch string(p.b[key:keyEnd]) {
		case `"text"`:
			found, err = p.something()
			content = content || found
		case `"delta"`, `"message"`:
			found, err = p.generated()
			content = content || found
		case `"finish_reason"`:
			if found, err = p.something(); found {
				info.Finished++
			}
		case `"token_ids"`:
			err = info.tokenIDs(p)
		default:
			err = p.skip()
		}
		if err != nil {
			return err
		}
	}
	if content {
		info.Deltas++
	}
	return nil
}

// generated moves over a delta or message and reports whether it carries
// anything that was generated.
func (p *parser) generated() (bool, error) {
	if p.peek() != '{' {
		return false, p.skip()
	}
	p.i++
	content := false
	for first := true; ; first = false {
		key, keyEnd, err := p.member(first)
		if err != nil || keyEnd == 0 {
			return content, err
		}
		var found bool
		switch string(p.b[key:keyEnd]) {
		case `"content"`, `"reasoning_content"`, `"reasoning"`, `"refusal"`, `"tool_calls"`, `"function_call"`:
			found, err = p.something()
			content = content || found
		default:
			err = p.skip()
		}
		if err != nil {
			return false, err
		}
	}
}

// something moves over the value at the cursor and reports whether it is a
// string, array or object with anything in it.
func (p *parser) something() (bool, error) {
	start := p.i
	if err := p.skip(); err != nil {
		return false, err
	}
	switch v := Value(p.b[start:p.i]); v.Kind() {
	case '"', '[', '{':
		return !v.empty(), nil
	}
	return false, nil
}

func (info *ChunkInfo) tokenIDs(p *parser) error {
	if p.peek() != '[' {
		return p.skip()
	}
	p.i++
	info.TokenIDs = max(info.TokenIDs, 0)
	for first := true; ; first = false {
		more, err := p.element(first)
		if err != nil || !more {
			return err
		}
		if err := p.skip(); err != nil {
			return err
		}
		info.TokenIDs++
	}
}

// usage moves over the value at the cursor and returns it if it is an object.
func (p *parser) usage() (*Usage, error) {
	if p.peek() != '{' {
		return nil, p.skip()
	}
	u := &Usage{}
	return u, u.parse(p)
}

// tiers moves over the nvext at the cursor and returns its breakdown of cached blocks,
// nil if it has none.
func (p *parser) tiers() (found *TierBlocks, err error) {
	if p.peek() != '{' {
		return nil, p.skip()
	}
	p.i++
	for first := true; ; first = false {
		key, keyEnd, err := p.member(first)
		if err != nil || keyEnd == 0 {
			return found, err
		}
		if string(p.b[key:keyEnd]) == `"cache_hit_breakdown"` && p.peek() == '{' {
			found = &TierBlocks{}
			err = found.parse(p)
		} else {
			err = p.skip()
		}
		if err != nil {
			return nil, err
		}
	}
}

// parse reads the breakdown at the cursor. A member that is no number of blocks is 0.
func (t *TierBlocks) parse(p *parser) error {
	p.i++
	for first := true; ; first = false {
		key, keyEnd, err := p.member(first)
		if err != nil || keyEnd == 0 {
			return err
		}
		switch string(p.b[key:keyEnd]) {
		case `"device_blocks"`:
			t.Device, _, err = p.uint()
		case `"host_blocks"`:
			t.Host, _, err = p.uint()
		case `"disk_blocks"`:
			t.Disk, _, err = p.uint()
		default:
			err = p.skip()
		}
		if err != nil {
			return err
		}
	}
}

// parse reads the usage object at the cursor.
func (u *Usage) parse(p *parser) error {
	p.i++
	for first := true; ; first = false {
		key, keyEnd, err := p.member(first)
		if err != nil || keyEnd == 0 {
			return err
		}
		switch string(p.b[key:keyEnd]) {
		case `"prompt_tokens"`:
			u.Prompt, _, err = p.uint()
		case `"completion_tokens"`:
			u.Completion, _, err = p.uint()
		case `"prompt_tokens_details"`:
			u.Cached, u.HasCached, err = p.uintMember(`"cached_tokens"`)
		default:
			err = p.skip()
		}
		if err != nil {
			return err
		}
	}
}

// uintMember moves over the value at the cursor and returns the member of that quoted
// name if it is an object with one that is an unsigned integer.
func (p *parser) uintMember(name string) (n uint64, ok bool, err error) {
	if p.peek() != '{' {
		return 0, false, p.skip()
	}
	p.i++
	for first := true; ; first = false {
		key, keyEnd, err := p.member(first)
		if err != nil || keyEnd == 0 {
			return n, ok, err
		}
		if string(p.b[key:keyEnd]) == name {
			n, ok, err = p.uint()
		} else {
			err = p.skip()
		}
		if err != nil {
			return 0, false, err
		}
	}
}

// uint moves over the value at the cursor and returns it if it is an unsigned
// integer.
func (p *parser) uint() (uint64, bool, error) {
	start := p.i
	if err := p.skip(); err != nil {
		return 0, false, err
	}
	n, ok := Value(p.b[start:p.i]).Uint()
	return n, ok, nil
}
