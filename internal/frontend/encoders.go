package frontend

// largeBody is where a body begins to be large: its prompt takes more than a few
// milliseconds to tokenize.
const largeBody = 64 << 10

// encoders bounds how many prompts are tokenized at a time. Small prompts have
// places of their own, so that they do not wait for large ones.
type encoders struct{ small, large chan struct{} }

// newEncoders returns encoders with n places for each kind.
func newEncoders(n int) encoders {
	return encoders{small: make(chan struct{}, n), large: make(chan struct{}, n)}
}

// gate returns the places for the prompt of a body of so many bytes: sending takes
// one, receiving gives it back.
func (e encoders) gate(body int) chan struct{} {
	if body < largeBody {
		return e.small
	}
	return e.large
}
