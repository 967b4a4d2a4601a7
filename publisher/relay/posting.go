package relay

import (
	"math/bits"
	"slices"
)

// maxFew is up to how many slots a posting names one by one.
const maxFew = 256

// posting is the set of the slots whose events have one value of a tag. Adding
// to it and removing from it does not depend on how many it holds, so that a
// value which nearly every event has costs a replacement no more than a rare
// one: beyond maxFew it is one bit per slot.
type posting struct {
	value string
	n     int
	few   []uint32 // in no order
	bits  []uint64 // instead, once there were more than maxFew
}

func (p *posting) add(slot uint32) {
	if p.bits != nil {
		p.set(slot)
		return
	}
	if slices.Contains(p.few, slot) {
		return
	}
	if p.n < maxFew {
		p.few = append(p.few, slot)
		p.n++
		return
	}
	few := p.few
	p.few, p.n = nil, 0
	for _, s := range few {
		p.set(s)
	}
	p.set(slot)
}

func (p *posting) set(slot uint32) {
	word, bit := int(slot/64), uint64(1)<<(slot%64)
	if word >= len(p.bits) {
		p.bits = append(p.bits, make([]uint64, word+1-len(p.bits))...)
	}
	if p.bits[word]&bit == 0 {
		p.bits[word] |= bit
		p.n++
	}
}

func (p *posting) remove(slot uint32) {
	if p.bits == nil {
		if i := slices.Index(p.few, slot); i >= 0 {
			last := len(p.few) - 1
			p.few[i] = p.few[last]
			p.few = p.few[:last]
			p.n--
		}
		return
	}
	word, bit := int(slot/64), uint64(1)<<(slot%64)
	if word >= len(p.bits) || p.bits[word]&bit == 0 {
		return
	}
	p.bits[word] &^= bit
	if p.n--; p.n > maxFew/2 { // well below, so that it does not go to and fro
		return
	}
	few := make([]uint32, 0, maxFew)
	p.each(func(s uint32) { few = append(few, s) })
	p.few, p.bits = few, nil
}

// each calls yield once for every slot, in no order.
func (p *posting) each(yield func(slot uint32)) {
	for _, s := range p.few {
		yield(s)
	}
	for i, word := range p.bits {
		for ; word != 0; word &= word - 1 {
			yield(uint32(i*64 + bits.TrailingZeros64(word)))
		}
	}
}
