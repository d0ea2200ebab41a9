package hub

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// getOn is what has to come before a broken connection counts as progress.
const getOn = 1 << 20

// blob brings the contents of a file into the cache.
func (t *target) blob(ctx context.Context, e *entry) error {
	path := t.local.blob(e.etag)
	if present(path) {
		return nil
	}
	if e.size > t.limit() {
		return ErrTooLarge
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	unlock, err := lockFile(ctx, filepath.Join(t.CacheDir, ".locks", folder(t.repo), e.etag+".lock"))
	if err != nil {
		return err
	}
	defer unlock()
	if present(path) {
		return nil // by whom we waited for
	}
	d := &download{target: t, entry: *e, path: path, temp: unique(path, ".incomplete")}
	d.file, err = os.OpenFile(d.temp, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o666)
	if err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	if err := d.run(ctx); err != nil {
		d.keep(err)
		return err
	}
	return nil
}

func (c *Client) limit() int64 {
	if c.maxBytes > 0 {
		return c.maxBytes
	}
	return MaxFileBytes
}

// download is a blob on its way: a file that nobody else writes to.
type download struct {
	*target
	entry
	path string // where it belongs
	temp string // where it is
	file *os.File
	done int64
	most int64 // that done has ever been
}

// fileError is a failure of the disk, not of the network.
type fileError struct{ err error }

func (e *fileError) Error() string { return "cache: " + e.err.Error() }
func (e *fileError) Unwrap() error { return e.err }

// run downloads, checks and publishes. Contents that are wrong are fetched once
// more, from their beginning: what was left by others may be of no use.
func (d *download) run(ctx context.Context) error {
	if err := d.adopt(); err != nil {
		return err
	}
	d.report(d.name, d.done, d.size)
	err := d.transfer(ctx)
	if errors.Is(err, ErrChecksum) {
		if err := d.truncate(); err != nil {
			return err
		}
		d.most = 0
		err = d.transfer(ctx)
	}
	if err != nil {
		return err
	}
	return d.publish()
}

// adopt begins with the longest part that an earlier download left. It is copied,
// because its writer may still be at work where locks do not work. A part that the
// checksum cannot prove right is not used.
func (d *download) adopt() error {
	if !provable(d.etag) {
		return nil
	}
	var longest string
	var size int64
	for _, path := range d.parts() {
		info, err := os.Lstat(path)
		if err == nil && info.Mode().IsRegular() && info.Size() > size && info.Size() <= d.limit() && (d.size < 0 || info.Size() <= d.size) {
			longest, size = path, info.Size()
		}
	}
	if longest == "" {
		return nil
	}
	part, err := os.Open(longest)
	if err != nil {
		return nil // it is gone, or somebody else's
	}
	defer part.Close()
	d.done, err = io.Copy(d.file, io.LimitReader(part, size))
	if err != nil {
		return &fileError{err}
	}
	d.most = d.done
	return nil
}

// parts returns what unfinished downloads of the blob have left, under our names
// and those of Python's library.
func (d *download) parts() []string {
	dir := filepath.Dir(d.path)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if strings.HasPrefix(e.Name(), d.etag+".") && strings.HasSuffix(e.Name(), ".incomplete") && path != d.temp {
			out = append(out, path)
		}
	}
	return out
}

// transfer gets what is missing, going on after each break, and checks the whole.
func (d *download) transfer(ctx context.Context) error {
	err := d.retry(ctx, maxTries, func() error {
		err := d.get(ctx)
		if worthRetry(err) && d.done >= d.most+getOn {
			d.most = d.done
			return errProgress
		}
		return err
	})
	if err != nil {
		return err
	}
	return d.check()
}

// get makes one request for what is missing.
func (d *download) get(ctx context.Context) error {
	if d.done == d.size {
		return nil
	}
	header := http.Header{}
	if d.done > 0 && !provable(d.etag) {
		if strings.HasPrefix(d.tag, "W/") {
			if err := d.truncate(); err != nil {
				return err
			}
		} else {
			header.Set("If-Range", d.tag)
		}
	}
	// With a checksum there is no If-Range: the host that has the contents knows
	// them by another tag, and the checksum finds a mixture.
	if d.done > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", d.done))
	}
	return d.ask(ctx, question{http.MethodGet, d.url, header, stallTimeout}, func(resp *http.Response, body io.Reader) error {
		rest, err := d.position(resp)
		if err != nil {
			return err
		}
		if enc := resp.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
			return fmt.Errorf("content-encoding: expected identity, got %.40q", d.clean(enc))
		}
		if rest >= 0 && d.size >= 0 && d.done+rest != d.size {
			return fmt.Errorf("size: expected %d bytes, the server has %d: %w", d.size, d.done+rest, ErrChecksum)
		}
		if d.size < 0 && rest >= 0 {
			d.size = d.done + rest
		}
		if d.size > d.limit() {
			return ErrTooLarge
		}
		if _, err := io.Copy(d, body); err != nil {
			if fe := (*fileError)(nil); errors.As(err, &fe) || errors.Is(err, ErrTooLarge) || errors.Is(err, ErrChecksum) {
				return err
			}
			return broken(fmt.Errorf("connection broke after %d bytes: %w", d.done, err))
		}
		if d.done < d.size {
			return broken(fmt.Errorf("connection broke after %d bytes: %w", d.done, io.ErrUnexpectedEOF))
		}
		if d.size < 0 {
			d.size = d.done
			d.report(d.name, d.done, d.size)
		}
		return nil
	})
}

// position brings the file to where the body of an answer begins and returns how
// much the body holds, or -1 if it does not say.
func (d *download) position(resp *http.Response) (int64, error) {
	switch resp.StatusCode {
	case http.StatusOK:
		if d.done > 0 {
			return resp.ContentLength, d.truncate()
		}
		return resp.ContentLength, nil
	case http.StatusPartialContent:
		var first, last int64
		_, err := fmt.Sscanf(resp.Header.Get("Content-Range"), "bytes %d-%d/", &first, &last)
		if err == nil && first == d.done && last >= first {
			return last + 1 - first, nil
		}
	case http.StatusRequestedRangeNotSatisfiable:
	default:
		return 0, d.refusal(resp)
	}
	// The server has not got what we asked for: once more, all of it.
	if err := d.truncate(); err != nil {
		return 0, err
	}
	return 0, broken(fmt.Errorf("the server has no such range: %.80q", d.clean(resp.Header.Get("Content-Range"))))
}

// Write appends to the file.
func (d *download) Write(p []byte) (int, error) {
	if end := d.done + int64(len(p)); d.size >= 0 && end > d.size {
		return 0, fmt.Errorf("size: expected %d bytes, more came: %w", d.size, ErrChecksum)
	} else if end > d.limit() {
		return 0, ErrTooLarge
	}
	n, err := d.file.WriteAt(p, d.done)
	d.done += int64(n)
	if err != nil {
		return n, &fileError{err}
	}
	d.report(d.name, d.done, d.size)
	return n, nil
}

// truncate throws away what has come.
func (d *download) truncate() error {
	d.done = 0
	if err := d.file.Truncate(0); err != nil {
		return &fileError{err}
	}
	return nil
}

// check compares the file with its etag.
func (d *download) check() error {
	if d.size >= 0 && d.done != d.size {
		return fmt.Errorf("size: expected %d bytes, got %d: %w", d.size, d.done, ErrChecksum)
	}
	sums := digests(d.etag, d.done)
	if sums == nil {
		return nil
	}
	var all []io.Writer
	for _, s := range sums {
		all = append(all, s)
	}
	if _, err := io.Copy(io.MultiWriter(all...), io.NewSectionReader(d.file, 0, d.done)); err != nil {
		return &fileError{err}
	}
	for _, s := range sums {
		if hex.EncodeToString(s.Sum(nil)) == d.etag {
			return nil
		}
	}
	return fmt.Errorf("%w: expected %s, got %x", ErrChecksum, d.etag, sums[0].Sum(nil))
}

// digests returns the checksums of size bytes that an etag may be. For large files
// that is SHA-256. For small ones it is the id of a Git object, or the plain SHA-1
// that some mirrors give.
func digests(etag string, size int64) []hash.Hash {
	switch {
	case !isHex(etag):
	case len(etag) == 2*sha256.Size:
		return []hash.Hash{sha256.New()}
	case len(etag) == 2*sha1.Size:
		git := sha1.New()
		fmt.Fprintf(git, "blob %d\x00", size)
		return []hash.Hash{git, sha1.New()}
	}
	return nil
}

// provable reports whether contents can be checked against an etag.
func provable(etag string) bool { return digests(etag, 0) != nil }

// publish gives the file its name and removes what others left of it.
func (d *download) publish() error {
	err := errors.Join(d.file.Sync(), d.file.Close())
	if err == nil {
		err = os.Rename(d.temp, d.path)
	}
	if err != nil && !present(d.path) { // it may be there by somebody else's hand
		return &fileError{err}
	}
	for _, path := range d.parts() {
		os.Remove(path)
	}
	return nil
}

// keep puts what has come aside for the next time, or removes it where it is of no
// use.
func (d *download) keep(why error) {
	d.file.Close()
	rest := d.path + ".incomplete"
	info, err := os.Stat(rest)
	longer := err == nil && info.Size() >= d.done
	if d.done > 0 && !longer && provable(d.etag) && !errors.Is(why, ErrChecksum) && !errors.Is(why, ErrTooLarge) {
		if os.Rename(d.temp, rest) == nil {
			return
		}
	}
	os.Remove(d.temp)
}
