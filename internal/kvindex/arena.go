package kvindex

const (
	granule    = 4    // words: the smallest piece
	arenaWords = 1024 // words allocated at once
)

// arena gives out the pieces in which runs keep a word for each block. Words are
// numbered, and lead to the run that owns them. There are no pointers, and what is
// given back is given out again. The zero value is empty.
type arena struct {
	chunks [][]uint64
	times  [][]uint64 // beside the words, if timed
	timed  bool
	owner  []uint32 // runs, by granule
	words  uint32   // from here on none was given out
	free   [len(pieceSizes)]uint32
}

func (a *arena) at(word uint32) *uint64 {
	return &a.chunks[word/arenaWords][word%arenaWords]
}

// piece returns n words.
func (a *arena) piece(word uint32, n int) []uint64 {
	o := word % arenaWords
	return a.chunks[word/arenaWords][o : o+uint32(n)]
}

// timesOf returns the times beside n words.
func (a *arena) timesOf(word uint32, n int) []uint64 {
	o := word % arenaWords
	return a.times[word/arenaWords][o : o+uint32(n)]
}

// get returns a piece for a run.
func (a *arena) get(size uint8, run uint32) uint32 {
	n := uint32(pieceSizes[size])
	word := a.free[size] - 1 // the first word of a free piece names the next, plus one
	if a.free[size] != 0 {
		a.free[size] = uint32(*a.at(word))
	} else {
		for a.words%arenaWords+n > arenaWords || int(a.words) == len(a.chunks)*arenaWords {
			a.fillUp()
		}
		word = a.words
		a.words += n
		a.owner = append(a.owner, make([]uint32, n/granule)...)
	}
	for i := range n / granule {
		a.owner[word/granule+i] = run
	}
	return word
}

// fillUp makes small pieces of what is left of the last chunk, and adds a chunk when
// nothing is.
func (a *arena) fillUp() {
	if a.words%arenaWords == 0 {
		a.chunks = append(a.chunks, make([]uint64, arenaWords))
		if a.timed {
			a.times = append(a.times, make([]uint64, arenaWords))
		}
		return
	}
	a.owner = append(a.owner, none)
	a.words += granule
	a.put(0, a.words-granule)
}

// put takes a piece back.
func (a *arena) put(size uint8, word uint32) {
	*a.at(word) = uint64(a.free[size])
	a.free[size] = word + 1
}

func (a *arena) bytes() int {
	return (len(a.chunks)+len(a.times))*(8*arenaWords+24) + 4*cap(a.owner)
}
