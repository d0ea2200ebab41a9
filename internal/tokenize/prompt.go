package tokenize

// Renderer writes the prompt of a chat. Implementations are safe for concurrent
// use.
type Renderer interface {
	// Render replaces dst with the prompt of c. After an error dst holds no
	// usable prompt. Errors name the field of the request at fault.
	Render(dst *Prompt, c Chat) error
}

// Chat is the part of a chat request that decides its prompt. What the request
// may leave out is empty when it does; null counts as left out. Which members
// matter depends on the renderer.
type Chat struct {
	Messages []byte // the messages array
	Tools    []byte // the tools array, empty when there is none
	// NoGenerationPrompt leaves out the opening of the assistant's turn
	// (add_generation_prompt: false).
	NoGenerationPrompt bool
	// ContinueFinal leaves the last message open, for the model to go on with
	// it (continue_final_message). It goes with NoGenerationPrompt.
	ContinueFinal bool

	// The members below are raw JSON, too, as the request has them.

	ToolChoice      []byte // tool_choice: a string, or an object that names a tool
	Documents       []byte // documents: an array of objects
	ReasoningEffort []byte // reasoning_effort: a string, for some engines a number
	Kwargs          []byte // chat_template_kwargs: an object, variables for the template
	Template        []byte // chat_template: a string, a template of the request's own
}

// Prompt is a rendered prompt. Text is what a template engine would print; it
// cannot be tokenized again without losing who wrote what, hence the segments.
// The zero value is empty and ready. Not safe for concurrent use.
type Prompt struct {
	Text     []byte
	Segments []Segment // cover Text from start to end, without gaps
}

// Segment is a run of a prompt's text that ends at byte End.
type Segment struct {
	End int
	// Special says that the template wrote it: spellings of special tokens are
	// those tokens.
	Special bool
}

// Reset empties p and keeps its memory.
func (p *Prompt) Reset() {
	p.Text = p.Text[:0]
	p.Segments = p.Segments[:0]
}

// Special appends what the template wrote, special tokens included.
func (p *Prompt) Special(s string) {
	p.Text = append(p.Text, s...)
	p.mark(true)
}

// Literal appends text in which no special token can be spelled.
func (p *Prompt) Literal(s string) {
	p.Text = append(p.Text, s...)
	p.mark(false)
}

// mark makes the text after the last segment a segment of the given kind,
// joined with the last one where they are alike.
func (p *Prompt) mark(special bool) {
	n := len(p.Segments)
	start := 0
	if n > 0 {
		start = p.Segments[n-1].End
	}
	switch {
	case len(p.Text) == start:
	case n > 0 && p.Segments[n-1].Special == special:
		p.Segments[n-1].End = len(p.Text)
	default:
		p.Segments = append(p.Segments, Segment{End: len(p.Text), Special: special})
	}
}

// AppendIDs appends the token ids of p to dst. Each segment is encoded by
// itself.
func (p *Prompt) AppendIDs(dst []uint32, t Tokenizer) ([]uint32, error) {
	start := 0
	for _, s := range p.Segments {
		var err error
		if dst, err = t.Encode(dst, p.Text[start:s.End], s.Special); err != nil {
			return dst, err
		}
		start = s.End
	}
	return dst, nil
}
