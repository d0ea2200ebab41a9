package stator

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// saveInterval is how often what policies have learned is written down.
const saveInterval = time.Minute

// learnedFile is where what policies have learned is kept; empty for nowhere.
func (s *Server) learnedFile() string {
	if s.cfg.Router.Policy != "thompson" {
		return ""
	}
	return s.cfg.Router.Thompson.State
}

// restoreLearned reads what policies had learned before. A file that cannot be used is
// said, and left behind under another name: a policy learns anew in minutes. Where that is
// not possible it stays as it is, and nothing is written down. An error means that the file
// cannot be read, or that no file can be written where it is.
func (s *Server) restoreLearned() error {
	path := s.learnedFile()
	if path == "" {
		return nil
	}
	if err := tryWrite(path); err != nil {
		return errState(path, err)
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		s.restored = true
		return nil
	}
	if err != nil {
		return errState(path, err)
	}
	if err := s.router.RestoreBandits(data); err != nil {
		bad := path + ".bad"
		if failed := os.Rename(path, bad); failed != nil {
			s.log.Warn("what policies had learned cannot be used nor put aside; they begin anew, and nothing is written down", "file", path, "error", err, "rename_error", failed)
			return nil
		}
		s.log.Warn("what policies had learned cannot be used; they begin anew", "file", path, "kept_as", bad, "error", err)
	}
	s.restored = true
	return nil
}

// tryWrite returns why the file could not be replaced by a new one, or nil.
func tryWrite(path string) error {
	tmp, err := createBeside(path)
	if err != nil {
		return err
	}
	return errors.Join(tmp.Close(), os.Remove(tmp.Name()))
}

// createBeside makes a file with a name of its own that can take the place of another.
func createBeside(path string) (*os.File, error) {
	return os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
}

// keepLearned writes down what policies have learned, from time to time.
func (s *Server) keepLearned(ctx context.Context) {
	t := time.NewTicker(saveInterval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			if err := s.saveLearned(); err != nil {
				s.log.Warn("what policies have learned cannot be written down", "error", err)
			}
		}
	}
}

// saveLearned writes down what policies have learned. The file is replaced once all of it
// is written, and keeps its mode; a new one is for its owner only.
func (s *Server) saveLearned() error {
	path := s.learnedFile()
	if path == "" || !s.restored {
		return nil
	}
	s.saving.Lock() // or what was saved first could come last
	defer s.saving.Unlock()
	data, err := s.router.SaveBandits()
	if err != nil {
		return errState(path, err)
	}
	tmp, err := createBeside(path)
	if err != nil {
		return errState(path, err)
	}
	_, err = tmp.Write(data)
	if old, missing := os.Stat(path); missing == nil && err == nil {
		err = tmp.Chmod(old.Mode().Perm())
	}
	err = errors.Join(err, tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
		return errState(path, err)
	}
	return nil
}
