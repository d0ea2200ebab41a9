package router

import (
	"time"

	"github.com/stator-ai/stator/internal/sched"
)

// An answer that comes at once does not say when its prompt had been computed. So
// that it does not count as work to be computed for as long as the answer is written,
// that moment is estimated, from how fast the rank computes other prompts.

const (
	// guessedSpeed is how many prompt tokens a rank computes in a second until it has
	// shown its own speed. A slow one is better guessed too fast: its answers take
	// longer still.
	guessedSpeed = 8000
	// speedTokens is how many tokens must have been computed for the time to say
	// something about the speed.
	speedTokens = 512
	// speedLearning is how much the latest time counts.
	speedLearning = 0.2
	maxPrefill    = time.Minute
)

// learnSpeed takes in that so many tokens took so long. The caller holds the pool's
// lock.
func (s *slot) learnSpeed(tokens int, took time.Duration) {
	if tokens < speedTokens || took <= 0 {
		return
	}
	speed := float64(tokens) / took.Seconds()
	if s.speed == 0 {
		s.speed = speed
	}
	s.speed += speedLearning * (speed - s.speed)
}

// prefillTime estimates how long the rank takes to compute so many tokens.
func (s *slot) prefillTime(tokens int) time.Duration {
	speed := s.speed
	if speed == 0 {
		speed = guessedSpeed
	}
	return min(time.Duration(float64(tokens)/speed*float64(time.Second)), maxPrefill)
}

// prefill is the end of a prompt's computation that nobody will tell of. It is apart
// from its placement, which may have been used again by the time the timer fires.
type prefill struct {
	pool    *pool
	booking *sched.Booking // nil once it has been released; guarded by the pool's mutex
	timer   *time.Timer
}

// expectPrefill has the prompt count as computed after a while.
func (p *Placement) expectPrefill(after time.Duration) {
	f := &prefill{pool: p.pool, booking: &p.booking}
	p.prefill = f
	f.timer = time.AfterFunc(after, f.end)
}

// end has the prompt count as computed.
func (f *prefill) end() {
	p := f.pool
	now := p.router.cfg.Now()
	var granted []*waiter
	p.mu.Lock()
	if f.booking != nil && p.ledger.Prefilled(f.booking) {
		granted = p.drain(now)
	}
	p.mu.Unlock()
	p.tell(now, granted)
}
