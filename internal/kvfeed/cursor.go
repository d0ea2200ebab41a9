package kvfeed

// Verdict is what a sequence number means to a cursor.
type Verdict uint8

// The verdicts.
const (
	Initial    Verdict = iota // the first of the source, or of a source without a position
	Stale                     // seen before, or overtaken by a recovery
	Contiguous                // the one expected
	Gap                       // some before it are missing
	Restart                   // the source began anew; the cursor follows its new life
	Doubtful                  // overtaken by a recovery, or of a new life: it cannot be told
)

// String returns the name of the verdict in lower case.
func (v Verdict) String() string {
	return name(verdictNames[:], int(v))
}

var verdictNames = [...]string{"initial", "stale", "contiguous", "gap", "restart", "doubtful"}

func name(names []string, i int) string {
	if i < len(names) {
		return names[i]
	}
	return "unknown"
}

// Cursor is how far a source has been followed. It keeps two things apart: the
// position, up to which everything is in, and the last number that arrived. A
// recovery moves the position past numbers that are still on their way.
//
// Whether a number that goes backwards is a late repetition or a new beginning
// cannot be told from the number, so the source must say:
//
//   - Ordered is for a connection that neither repeats nor reorders, such as an
//     engine's own event socket. There a number that is not above the last one to
//     arrive means that the source restarted, whether it begins at 0, at 1 or, when
//     the beginning was missed, anywhere. One that a recovery has overtaken is
//     above the last to arrive, hence Stale. If none has arrived yet, one below the
//     position is Doubtful, except that 0 is a restart in any case: all others
//     follow it.
//   - Otherwise delivery may repeat and reorder, as a message broker's does or two
//     of them. There a number below the position is Stale, and only a larger epoch
//     is a Restart: such a source needs epochs, or another name after a restart.
//
// A restart that shows neither a new epoch nor a smaller number is a gap to a
// cursor; an owner that learns of one in another way gives the batches an epoch.
//
// The zero value is the cursor of an unordered source that has said nothing.
type Cursor struct {
	Ordered bool

	epoch  uint64
	seen   bool   // a batch of epoch arrived, the latest as number last
	last   uint64 // the largest such, which is the latest where Ordered
	placed bool   // all before next are in
	next   uint64
}

// Observe judges a batch that arrived and remembers that it did. The number of
// batches missing between it and those that arrived or were taken in before is
// missed; each is counted at one call only. Observe does not move the position,
// except that Restart leaves none.
func (c *Cursor) Observe(epoch, seq uint64) (v Verdict, missed uint64) {
	first := !c.seen
	if c.known() {
		backwards := c.Ordered && (c.seen && seq <= c.last || first && seq == 0 && c.next > 0)
		switch {
		case epoch < c.epoch && !c.Ordered:
			return Stale, 0
		case epoch != c.epoch, backwards:
			*c = Cursor{Ordered: c.Ordered, epoch: epoch, seen: true, last: seq}
			return Restart, 0
		}
	}
	missed = c.missed(seq)
	c.epoch = epoch
	if !c.seen || seq > c.last {
		c.seen, c.last = true, seq
	}
	switch {
	case !c.placed:
		return Initial, missed
	case seq < c.next && c.Ordered && first:
		return Doubtful, 0
	case seq < c.next:
		return Stale, 0
	case seq == c.next:
		return Contiguous, missed
	}
	return Gap, missed
}

// missed returns how many numbers before seq have neither arrived nor been taken
// in since the largest that has.
func (c *Cursor) missed(seq uint64) uint64 {
	expected := c.next
	switch {
	case !c.known():
		return 0
	case c.seen && (!c.placed || c.last >= c.next):
		expected = c.last + 1
	}
	if seq <= expected {
		return 0
	}
	return seq - expected
}

// Place sets the position: all batches of an epoch up to and including seq are in.
func (c *Cursor) Place(epoch, seq uint64) {
	if c.known() && epoch != c.epoch {
		*c = Cursor{Ordered: c.Ordered}
	}
	c.epoch, c.placed, c.next = epoch, true, seq+1
}

// Lift takes the position away. The next batch is Initial or Restart.
func (c *Cursor) Lift() { c.placed, c.next = false, 0 }

// forget takes it that none has arrived yet. The position stays.
func (c *Cursor) forget() { c.seen, c.last = false, 0 }

// Next returns the number expected, and whether there is a position.
func (c *Cursor) Next() (seq uint64, placed bool) { return c.next, c.placed }

// Epoch returns the epoch that is followed, and whether there is one.
func (c *Cursor) Epoch() (epoch uint64, known bool) { return c.epoch, c.known() }

// Behind reports whether a batch has arrived that lies beyond the position.
func (c *Cursor) Behind() bool { return c.seen && c.placed && c.last >= c.next }

func (c *Cursor) known() bool { return c.seen || c.placed }
