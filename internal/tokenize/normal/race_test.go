//go:build race

package normal

const raceEnabled = true
