// Package kvlog records what engines say about their caches and plays it back.
//
// A [Recorder] is a [kv.Applier] that writes events to a file of JSON lines without
// ever holding up the feed that they come by; [Tee] puts one before an index. A
// [Reader] reads such a file, and [Replay] sends what is in it to another Applier,
// at the pace at which it was recorded, at another, or at once.
//
// A line is one event:
//
//	{"timestamp":1250,"event":{"worker_id":7,"event":{…}}}
//
// The timestamp is in milliseconds since the recording began, and the event as
// [kv.AppendJSON] writes it. Its event_id is the number of the batch, so that the
// events of a batch, which stand one after another, are put together again. A source
// that restarted numbers its batches anew: the line then ends with its "epoch",
// which other programs that read such files ignore. A batch without events is
// written as one that removed nothing, because a missing number would be a loss.
package kvlog
