package discovery

// fullPage is from how many events on a page that brings nothing new is taken
// for one that a single second fills, where no page was larger: how many a
// source gives at once is not known.
const fullPage = 50

// pager goes back in time page by page. The second that a page ends in is asked
// for again, and what of it was there before is known by its id, so that none of
// it is lost between two pages.
type pager struct {
	until int64               // of the page that is read, seconds; inclusive
	edge  map[string]struct{} // ids of that second that were there before

	// Of the page that is read:
	events int // of its time
	fresh  int // of these, that were not there before
	oldest int64
	ids    map[string]struct{} // of the oldest second

	// Of all pages:
	largest int
	beyond  int  // events of another time than was asked for
	skipped bool // more of one second than a page holds
}

// event notes an event of the page, and reports whether it is of its time, and
// whether the page before had it already.
func (p *pager) event(id string, created, since int64) (ofTime, again bool) {
	if created > p.until || created < since {
		p.beyond++
		return false, false
	}
	p.events++
	if _, again = p.edge[id]; created < p.until || !again {
		p.fresh++
	}
	if p.ids == nil || created < p.oldest {
		p.oldest = created
		p.ids = map[string]struct{}{}
	}
	if created == p.oldest {
		p.ids[id] = struct{}{}
	}
	return true, again
}

// next ends the page, and reports whether there is another one to ask for.
func (p *pager) next() (more bool) {
	p.largest = max(p.largest, p.events)
	switch {
	case p.fresh > 0 && p.oldest < p.until:
		p.until, p.edge = p.oldest, p.ids
	case p.fresh > 0:
		for id := range p.ids {
			if p.edge == nil {
				p.edge = map[string]struct{}{}
			}
			p.edge[id] = struct{}{}
		}
	case p.events >= fullPage && p.events == p.largest:
		// Its second may go on behind the page, and cannot be asked for otherwise.
		p.skipped = true
		p.until--
		p.edge = nil
	default:
		return false
	}
	p.events, p.fresh, p.ids = 0, 0, nil
	return true
}
