package indexserver

import (
	"bytes"
	"net/http"
	"strconv"
	"time"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/kvindex"
	"github.com/stator-ai/stator/internal/openai"
)

// query answers how many tokens of a prompt each worker holds.
func (s *Server) query(w http.ResponseWriter, r *http.Request) error {
	f, held, err := s.readForm(w, r)
	defer held.release()
	if err != nil {
		return err
	}
	p, err := s.about(f)
	if err != nil {
		return err
	}
	return p.answer(w, f, f.prompt("token_ids", p.blockSize))
}

// queryByHash is query for who has hashed the prompt already.
func (s *Server) queryByHash(w http.ResponseWriter, r *http.Request) error {
	f, held, err := s.readForm(w, r)
	defer held.release()
	if err != nil {
		return err
	}
	p, err := s.about(f)
	if err != nil {
		return err
	}
	f.refuseSalt()
	return p.answer(w, f, f.hashes("block_hashes"))
}

// route takes in that a prompt was sent to a rank, which will soon hold it.
func (s *Server) route(w http.ResponseWriter, r *http.Request) error {
	f, held, err := s.readForm(w, r)
	defer held.release()
	if err != nil {
		return err
	}
	p, err := s.about(f)
	if err != nil {
		return err
	}
	src := kv.Source{Worker: f.instance(), Rank: f.rank()}
	var prompt []kv.Block
	switch byToken, byHash := f.has("token_ids"), f.has("block_hashes"); {
	case byToken == byHash:
		f.fail("token_ids", "expected either token_ids or block_hashes")
	case byToken:
		prompt = f.prompt("token_ids", p.blockSize)
	default:
		f.refuseSalt()
		prompt = f.hashes("block_hashes")
	}
	if f.err != nil {
		return f.err
	}
	rk, err := s.lookup(p, src)
	if err == nil && !rk.route(time.Now(), prompt) {
		err = errUnregistered
	}
	if err != nil {
		return s.refusal(err, "instance_id", p, src)
	}
	reply(w, http.StatusOK, statusBody{"ok"})
	return nil
}

// route records a decision, unless the rank is gone.
func (r *rank) route(now time.Time, prompt []kv.Block) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone {
		return false
	}
	r.pool.index.Route(now, r.src, prompt)
	return true
}

// about returns the pool that a request names.
func (s *Server) about(f *form) (*pool, error) {
	key := f.model()
	if f.err != nil {
		return nil, f.err
	}
	return s.find(key)
}

// refuseSalt fails where a salt can have no effect.
func (f *form) refuseSalt() {
	if f.text("cache_salt") != "" {
		f.fail("cache_salt", "expected none: it is part of the hashes")
	}
}

// objects returns the images and the like in the first blocks of a prompt.
func (f *form) objects(field string, blocks int) [][]kv.MMObject {
	if !f.has(field) {
		return nil
	}
	v := f.array(field)
	most := len(v)/len(`{"mm_hash":0}`) + 1
	infos := min(blocks, bytes.Count(v, []byte{','})) + 1
	if !f.take((most + infos) * objectBytes) {
		return nil
	}
	out, all := make([][]kv.MMObject, 0, infos), make([]kv.MMObject, 0, most)
	each(f, field, v, func(path string, info openai.Value) bool {
		begin := len(all)
		if info.Present() {
			inner := f.member(path, info, "mm_objects")
			each(f, path+".mm_objects", inner, func(path string, object openai.Value) bool {
				v := f.member(path, object, "mm_hash")
				h, ok := v.Uint()
				if !ok {
					f.fail(path+".mm_hash", "expected a whole number of 64 bits")
				}
				all = append(all, kv.MMObject{Hash: kv.MMHash(h)})
				return f.err == nil
			})
		}
		out = append(out, all[begin:])
		return f.err == nil && len(out) < blocks
	})
	return out
}

// member returns a member of an object at a path.
func (f *form) member(path string, v openai.Value, name string) openai.Value {
	if f.err != nil {
		return nil
	}
	o, err := openai.ParseObject(v)
	if err != nil {
		f.fail(path, "expected an object with %s, got %s", name, v.TypeName())
		return nil
	}
	return o.Get(name)
}

// each calls yield for the elements of an array, with the path of each, until it
// returns false.
func each(f *form, path string, v openai.Value, yield func(path string, element openai.Value) bool) {
	if f.err != nil {
		return
	}
	i := 0
	err := v.Elements(func(e openai.Value) bool {
		i++
		return yield(path+element(i-1), e)
	})
	if err != nil {
		f.fail(path, "expected an array, got %s", v.TypeName())
	}
}

// answer looks a prompt up and sends what was found.
func (p *pool) answer(w http.ResponseWriter, f *form, prompt []kv.Block) error {
	if f.err != nil {
		return f.err
	}
	found, frequencies := p.match(prompt)
	replyRaw(w, http.StatusOK, appendAnswer(nil, found, p.blockSize, frequencies))
	return nil
}

// match looks a prompt up and counts that it was asked for.
func (p *pool) match(prompt []kv.Block) (found []kvindex.Overlap, frequencies []int) {
	found = p.index.Match(nil, prompt)
	if p.uses != nil {
		deepest := uint32(0)
		for i := range found {
			deepest = max(deepest, found[i].Depth[kv.Device])
		}
		frequencies = p.uses.Record(nil, time.Now(), prompt[:deepest])
	}
	return found, frequencies
}

// appendAnswer appends the answer to a query. Counts are in tokens; overlaps are
// sorted by worker and rank.
func appendAnswer(dst []byte, overlaps []kvindex.Overlap, blockSize int, frequencies []int) []byte {
	size := uint64(blockSize)
	dst = append(dst, `{"scores":`...)
	dst = appendWorkers(dst, overlaps, func(dst []byte, of []kvindex.Overlap) []byte {
		return appendDevice(dst, of, size)
	})
	dst = append(dst, `,"frequencies":`...)
	dst = appendInts(dst, frequencies)
	dst = append(dst, `,"instances":`...)
	dst = appendWorkers(dst, overlaps, func(dst []byte, of []kvindex.Overlap) []byte {
		var most [kv.NumTiers]uint64
		for i := range of {
			for t, depth := range of[i].Depth {
				most[t] = max(most[t], size*uint64(depth))
			}
		}
		dst = append(dst, `{"longest_matched":`...)
		dst = strconv.AppendUint(dst, most[kv.External], 10)
		dst = append(dst, `,"gpu":`...)
		dst = strconv.AppendUint(dst, most[kv.Device], 10)
		dst = append(dst, `,"dp":`...)
		dst = appendDevice(dst, of, size)
		dst = append(dst, `,"cpu":`...)
		dst = strconv.AppendUint(dst, most[kv.Host], 10)
		dst = append(dst, `,"disk":`...)
		dst = strconv.AppendUint(dst, most[kv.Disk], 10)
		return append(dst, '}')
	})
	return append(dst, "}\n"...)
}

// appendWorkers appends an object with a member for each worker.
func appendWorkers(dst []byte, overlaps []kvindex.Overlap, value func([]byte, []kvindex.Overlap) []byte) []byte {
	dst = append(dst, '{')
	for i := 0; i < len(overlaps); {
		worker, first := overlaps[i].Source.Worker, i
		for i++; i < len(overlaps) && overlaps[i].Source.Worker == worker; i++ {
		}
		if first > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, '"')
		dst = strconv.AppendUint(dst, uint64(worker), 10)
		dst = append(dst, `":`...)
		dst = value(dst, overlaps[first:i])
	}
	return append(dst, '}')
}

// appendDevice appends what the ranks of a worker hold in the device's memory.
func appendDevice(dst []byte, of []kvindex.Overlap, size uint64) []byte {
	dst = append(dst, '{')
	comma := false
	for i := range of {
		depth := of[i].Depth[kv.Device]
		if depth == 0 {
			continue
		}
		if comma {
			dst = append(dst, ',')
		}
		comma = true
		dst = append(dst, '"')
		dst = strconv.AppendUint(dst, uint64(of[i].Source.Rank), 10)
		dst = append(dst, `":`...)
		dst = strconv.AppendUint(dst, size*uint64(depth), 10)
	}
	return append(dst, '}')
}

func appendInts(dst []byte, numbers []int) []byte {
	dst = append(dst, '[')
	for i, n := range numbers {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, int64(n), 10)
	}
	return append(dst, ']')
}
