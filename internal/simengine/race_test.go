//go:build race

package simengine

// seeds is how many random loads the slower tests run.
const seeds = 40
