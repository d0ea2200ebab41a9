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
// said, and left behind under another name: a policy learns anew in minutes.
func (s *Server) restoreLearned() error {
	path := s.learnedFile()
	if path == "" {
		return nil
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		s.restored = true
		return nil
	}
	if err != nil {
		return errState(path, err)
	}
	s.restored = true
	if err := s.router.RestoreBandits(data); err != nil {
		s.log.Warn("what policies had learned cannot be used; they begin anew", "file", path, "kept_as", path+".bad", "error", err)
		return os.Rename(path, path+".bad")
	}
	return nil
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
// is written.
func (s *Server) saveLearned() error {
	path := s.learnedFile()
	if path == "" || !s.restored {
		return nil
	}
	data, err := s.router.SaveBandits()
	if err != nil {
		return errState(path, err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return errState(path, err)
	}
	_, err = tmp.Write(data)
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
