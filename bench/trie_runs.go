package main

import (
	"fmt"
	"math/rand/v2"

	"github.com/stator-ai/stator/trie"
)

// What runs are made of: a workflow whose planner makes a call, and then has three agents
// work side by side. Each makes a call or two and has a function do the rest, so that a
// branch makes three. With the workflow and the planner that is fifty functions.
const (
	runAgents    = 8
	runFunctions = 40
	runBranches  = 3
	branchCalls  = 3
	callsPerRun  = 1 + runBranches*branchCalls
)

func agentName(i int) string    { return runNouns[i] + "_agent" }
func stageName(i int) string    { return runNouns[i] }
func functionName(i int) string { return runVerbs[i%len(runVerbs)] + "_" + runNouns[i/len(runVerbs)] }

var (
	runNouns = []string{"invoice", "search", "ticket", "schedule", "code", "database", "mail", "report", "policy", "customer"}
	runVerbs = []string{"read", "summarize", "classify", "rank", "extract", "translate"}
)

// runMaker makes up runs as a profiler records them: who called whom is in the ids of
// invocations. There are a number of shapes, and each run is one of them with other times
// and lengths.
type runMaker struct {
	rng    *rand.Rand
	shapes [][]trie.Step
	made   int

	// The run that was made last.
	steps []trie.Step
	began []float64
}

func newRunMaker(shapes int) *runMaker {
	m := &runMaker{rng: seeded("runs"), shapes: make([][]trie.Step, shapes)}
	for i := range m.shapes {
		s := runShape{rng: m.rng}
		s.make()
		m.shapes[i] = s.steps
		m.began = make([]float64, max(len(m.began), len(s.steps)))
	}
	return m
}

// next returns another run, which lasts until the next one is made.
func (m *runMaker) next() []trie.Step {
	m.steps = append(m.steps[:0], m.shapes[m.made%len(m.shapes)]...)
	m.made++
	slower := 0.5 + m.rng.Float64()
	for i := range m.steps {
		s := &m.steps[i]
		s.Time *= slower
		if s.Type == trie.LLMEnd {
			m.began[i] = *s.Began * slower
			s.Began = &m.began[i]
			s.OutputTokens = 1 + m.rng.IntN(2*s.OutputTokens)
		}
	}
	return m.steps
}

// runShape puts a run together. Branches come after each other and not by time, as those of
// several threads may.
type runShape struct {
	rng   *rand.Rand
	steps []trie.Step
}

func (s *runShape) make() {
	workflow := s.enter(trie.Invocation{ID: "root", Name: "root"}, "workflow", 0)
	planner := s.enter(workflow, "planner", 0.01)
	begin := s.call(planner, 0.02)
	end := begin
	for range runBranches {
		agent := s.enter(planner, agentName(s.rng.IntN(runAgents)), begin)
		own := 1 + s.rng.IntN(branchCalls-1)
		at := begin + 0.01
		for range own {
			at = s.call(agent, at)
		}
		function := s.enter(agent, functionName(s.rng.IntN(runFunctions)), at)
		for range branchCalls - own {
			at = s.call(function, at)
		}
		s.leave(function, at)
		s.leave(agent, at)
		end = max(end, at)
	}
	s.leave(planner, end)
	s.leave(workflow, end)
}

// enter begins an invocation of a function.
func (s *runShape) enter(caller trie.Invocation, name string, at float64) trie.Invocation {
	f := trie.Invocation{ID: s.id(), Name: name, ParentID: caller.ID, ParentName: caller.Name}
	s.steps = append(s.steps, trie.Step{Type: trie.FunctionStart, Time: at, UUID: f.ID, ParentID: caller.ID, Function: f})
	return f
}

func (s *runShape) leave(f trie.Invocation, at float64) {
	s.steps = append(s.steps, trie.Step{Type: trie.FunctionEnd, Time: at, UUID: f.ID, ParentID: f.ParentID, Function: f})
}

// call makes a call in a function and returns when something may come after it.
func (s *runShape) call(f trie.Invocation, at float64) float64 {
	id := s.id()
	tokens := 16 + s.rng.IntN(500)
	end := at + 0.2 + 0.01*float64(tokens)
	s.steps = append(s.steps,
		trie.Step{Type: trie.LLMStart, Time: at, UUID: id, ParentID: f.ID, Function: f},
		trie.Step{Type: trie.LLMEnd, Time: end, Began: &at, UUID: id, ParentID: f.ID, Function: f, OutputTokens: tokens})
	return end + 0.05
}

// id returns something as long as a UUID.
func (s *runShape) id() string {
	return fmt.Sprintf("%08x-0000-4000-8000-%012x", s.rng.Uint32(), s.rng.Uint32())
}
