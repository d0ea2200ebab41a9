// Package collect asks a Prometheus server how a fleet is doing: how much of its prompts
// it has in its caches, how long answers take, what is under way.
//
// [Metrics] asks for every [Field] of a [Config], through a [Client], and returns
// [Results]: a number or none for each field, where it came from, and for one that is
// missing the likely reason. [Core] and [Score] sum up.
//
// A field is a number for the whole fleet. Series are summed or averaged by Prometheus, in
// the same expression that takes the rate or the quantile; zero is a number; NaN, which a
// ratio or a quantile is when nothing happened, is none. Where the latest moments have no
// number, the window before them is asked. Servers differ in what they call a thing, so that
// a field has several expressions, and the first whose series exist and say something is
// taken and named; what one says about now goes before what another said before.
//
// With [NAT] as its compat, a Config has the questions asked and the answers read as NeMo
// Agent Toolkit does it: one series of many, zero as none, a mean of what is left.
//
// Nothing here reads a clock to decide anything: now is an argument. The client has
// timeouts.
package collect
