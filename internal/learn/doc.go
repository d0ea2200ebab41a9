// Package learn predicts what a call to a model will come to from what came of calls like
// it: how long its answer will be, when the next call of the same conversation will come,
// and how many will follow.
//
// A [Learner] hears of every call when it begins and when it ends. It knows two things.
// A conversation is a sequence of calls; a family is all conversations that begin alike,
// such as those of one agent, which have their instructions and tools in common. The first
// calls of an agent resemble each other, and so do the second ones: a family keeps apart
// what it knows by a call's number in its conversation. Where a family does not know a call,
// a conversation that has gone on for a while says what to expect of itself.
//
// What is known is the latest observations, a fixed number of each kind, so that what
// happened long ago does not count any more. Who is asked for by which scope, model and
// tenant, is part of every name: no observation of one is used for another, and none takes
// the room of another that has less.
//
// The package has no clock, chance, socket or log: the same calls in the same order lead to
// the same predictions.
package learn
