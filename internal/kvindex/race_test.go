//go:build race

package kvindex_test

const (
	raceEnabled = true
	// floorSeeds is how many random scripts of each shape TestProperty runs, and
	// floorOps how many blocks they have to store, remove and look up together.
	floorSeeds = 2
	floorOps   = 100_000
)
