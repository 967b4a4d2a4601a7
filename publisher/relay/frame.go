package relay

import (
	"encoding/binary"
	"encoding/json"
)

// The opcodes and close codes of RFC 6455 that we use.
const (
	opContinuation = 0x0
	opText         = 0x1
	opBinary       = 0x2
	opClose        = 0x8
	opPong         = 0xA

	finBit  = 0x80
	maskBit = 0x80

	closeGoingAway  = 1001
	closeProtocol   = 1002
	closeBadText    = 1007
	closeTooBig     = 1009
	closeOurFailure = 1011
)

// appendHeader adds the header of an unfragmented, unmasked frame of n bytes.
func appendHeader(b []byte, opcode byte, n int) []byte {
	b = append(b, finBit|opcode)
	switch {
	case n < 126:
		return append(b, byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, 126), uint16(n))
	default:
		return binary.BigEndian.AppendUint64(append(b, 127), uint64(n))
	}
}

// appendEvent adds one EVENT message; prefix is a subscription's.
func appendEvent(b, prefix, event []byte) []byte {
	b = appendHeader(b, opText, len(prefix)+len(event)+1)
	b = append(b, prefix...)
	b = append(b, event...)
	return append(b, ']')
}

// appendMessage adds a message made of JSON values, such as an EOSE.
func appendMessage(b []byte, values ...any) []byte {
	body, err := json.Marshal(values)
	if err != nil { // strings, bools, numbers and structs of them always encode
		return b
	}
	return append(appendHeader(b, opText, len(body)), body...)
}

func appendClose(b []byte, code int, reason string) []byte {
	reason = reason[:min(len(reason), 123)]
	b = appendHeader(b, opClose, 2+len(reason))
	b = binary.BigEndian.AppendUint16(b, uint16(code))
	return append(b, reason...)
}

// unmask applies the mask to b, whose first byte is at position pos of the
// payload.
func unmask(b []byte, key [4]byte, pos int) {
	// Eight bytes at a time: messages are small, but a hostile one need not be.
	var k [8]byte
	for i := range k {
		k[i] = key[(pos+i)&3]
	}
	wide := binary.LittleEndian.Uint64(k[:])
	for len(b) >= 8 {
		binary.LittleEndian.PutUint64(b, binary.LittleEndian.Uint64(b)^wide)
		b = b[8:]
	}
	for i := range b {
		b[i] ^= k[i]
	}
}
