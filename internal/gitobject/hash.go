package gitobject

import (
	"bytes"
	"encoding/hex"
	"strconv"

	"github.com/pjbgf/sha1cd"
	"github.com/stega/pgque-vendor/internal/fault"
)

// The types of git's objects, as their header spells them.
const (
	TypeBlob   = "blob"
	TypeTree   = "tree"
	TypeCommit = "commit"
	TypeTag    = "tag"
)

// BlobID returns the id that git gives a file with these bytes.
func BlobID(data []byte) (ID, error) { return ObjectID(TypeBlob, data) }

// CommitID returns the id of a commit from its raw content.
func CommitID(raw []byte) (ID, error) { return ObjectID(TypeCommit, raw) }

// TagID returns the id of an annotated tag's object from its raw content.
func TagID(raw []byte) (ID, error) { return ObjectID(TypeTag, raw) }

// ObjectID returns the id of an object of a type (TypeBlob, …) from its raw
// content, without git's header. SHA-1 can be made to collide, so the hash is
// one that recognises the traces which a collision attack leaves: such content
// has no id that proves anything, and the failure is fault.Integrity.
func ObjectID(objectType string, raw []byte) (ID, error) {
	id, collision := sum([]byte(objectType+" "+strconv.Itoa(len(raw))+"\x00"), raw)
	if collision {
		return "", fault.New(fault.Integrity, "a %s of %d bytes carries a SHA-1 collision attack", objectType, len(raw))
	}
	return id, nil
}

func sum(header, raw []byte) (id ID, collision bool) {
	h := sha1cd.New().(sha1cd.CollisionResistantHash)
	h.Write(header)
	h.Write(raw)
	digest, collision := h.CollisionResistantSum(nil)
	return ID(hex.EncodeToString(digest)), collision
}

// ParseCommit returns the root tree that a commit names, from the commit's raw
// content.
func ParseCommit(raw []byte) (tree ID, err error) {
	value, _, ok := headerLine(raw, "tree")
	if !ok {
		return "", fault.New(fault.Integrity, "a commit object does not begin with its tree")
	}
	return ParseID(value)
}

// ParseTag returns what an annotated tag's object points at and the type of
// that (TypeCommit, or TypeTag for a tag of a tag), from the tag's raw content.
func ParseTag(raw []byte) (object ID, objectType string, err error) {
	value, rest, ok := headerLine(raw, "object")
	if !ok {
		return "", "", fault.New(fault.Integrity, "a tag object does not begin with the object it points at")
	}
	object, err = ParseID(value)
	if err != nil {
		return "", "", err
	}
	objectType, _, ok = headerLine(rest, "type")
	if !ok {
		return "", "", fault.New(fault.Integrity, "a tag object does not say the type of the object it points at")
	}
	switch objectType {
	case TypeBlob, TypeTree, TypeCommit, TypeTag:
		return object, objectType, nil
	}
	return "", "", fault.New(fault.Integrity, "a tag object points at an object of the unknown type %q", clip(objectType))
}

// headerLine returns the value of a line "key value" at the start of raw, and
// what follows the line.
func headerLine(raw []byte, key string) (value string, rest []byte, ok bool) {
	line, rest, ok := bytes.Cut(raw, []byte("\n"))
	if !ok {
		return "", nil, false
	}
	v, ok := bytes.CutPrefix(line, []byte(key+" "))
	return string(v), rest, ok
}
