//go:build race

package indexserver

const raceEnabled = true
