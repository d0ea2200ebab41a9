//go:build !race

package kvindex_test

const (
	raceEnabled = false
	// floorSeeds is how many random scripts of each shape TestProperty runs, and
	// floorOps how many blocks they have to store, remove and look up together.
	floorSeeds = 20
	floorOps   = 10_000_000
)
