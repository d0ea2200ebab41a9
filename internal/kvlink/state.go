package kvlink

import (
	"strconv"
	"time"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvfeed"
)

// State is how a rank's link stands.
type State uint8

// The states.
const (
	None     State = iota // nothing tells of the rank
	Dialing               // there is no connection; the rank is as it was when there was one
	Silent                // connected, but nothing was heard yet and nothing can be asked, or it is of other ranks
	Syncing               // connected, and the past is being asked for
	Live                  // the rank is what the engine said
	Dirty                 // batches are missing, or may be: the rank may be wrong
	Degraded              // the past could not be had: the rank has only what was said since
)

var stateNames = [...]string{"none", "dialing", "silent", "syncing", "live", "dirty", "degraded"}

// String returns the name of the state in lower case.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "state " + strconv.Itoa(int(s))
}

// stateOf returns the state of a link that is connected.
func stateOf(s kvfeed.State) State {
	switch s {
	case kvfeed.Syncing:
		return Syncing
	case kvfeed.Live:
		return Live
	case kvfeed.Dirty:
		return Dirty
	case kvfeed.Degraded:
		return Degraded
	}
	return Silent
}

// Stats is a view of one rank's link. Counts begin with the link: a stream that is
// found at another address, or a worker that was forgotten, starts over.
type Stats struct {
	Source kv.Source
	// Address is where the rank publishes, and Replay where its past can be asked for;
	// both are empty for an engine that is polled.
	Address, Replay string
	Polled          bool
	// Ranks are those that the batches were of, in the order of their first; other
	// than Source's where a stream tells of another rank than it was found for.
	Ranks []uint32

	State     State
	Connected bool
	// Connects counts connections, or polls that were answered, and Failures those that
	// could not be made or broke. LastError is the last of these or, where there is a
	// connection, why nothing of what comes by it can be used; nil when all is well.
	Connects, Failures uint64
	LastError          error

	// Batches, Events and Bytes count what arrived; events as they were applied, bytes
	// of payloads. Malformed counts messages that could not be read, Misplaced batches
	// of a rank that the worker does not have or another stream tells of. Skipped
	// counts events that were left out.
	Batches, Events, Bytes uint64
	Malformed, Misplaced   uint64
	Skipped                [kv.NumReasons]uint64

	// LastBatch is when the last batch arrived, zero if none did. Lag is how long
	// before that the engine says it made it, where Timed: the sum of the time on the
	// way and the difference of two clocks, so that it may be negative.
	LastBatch time.Time
	Lag       time.Duration
	Timed     bool

	// BlockSize, Mismatch, Eagle, ExtraKeys and SaltsForgotten are what the decoder
	// found; see [kv.Decoder].
	BlockSize, Mismatch int
	Eagle, ExtraKeys    bool
	SaltsForgotten      uint64

	// Feed has position, queue, gaps, restarts and recoveries. Its State does not know
	// of connections.
	Feed kvfeed.Stats
}
