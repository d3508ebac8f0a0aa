package acl

// Grant is one rule of a principal, as shown to them.
type Grant struct {
	Rule  string // as a path: publisher_acl: fred: web*: test.*
	Where string // file:line
	On    string // the target; "" for every minion, and for what is not a function of minions
	Held  bool   // restricted to arguments that the rule lists
}

// Grants returns the rules of a subject, in the order of the settings. An operator needs none
// and has none.
func (r *Rules) Grants(s Subject) ([]Grant, error) {
	if r == nil {
		return nil, nil
	}
	s = r.standing(s)
	var list []Grant
	if s.Kind == Nobody || s.Operator {
		return nil, nil
	}
	for _, scope := range scopesOf(s.Kind) {
		holders, _, err := r.holders(&Question{Scope: scope}, &s)
		if err != nil {
			return nil, err
		}
		for _, h := range holders {
			for i := range h.rules {
				list = append(list, h.rules[i].grant())
			}
		}
	}
	return list, nil
}

// Operator reports whether a subject may do everything that is not on the blacklist.
func (r *Rules) Operator(s Subject) bool { return r != nil && r.standing(s).Operator }

// scopesOf returns the scopes in the settings for a kind of subject.
func scopesOf(k Kind) []Scope {
	if k == Peer {
		return []Scope{Minions, Runner, Mine} // peer, peer_run and mine_get
	}
	return []Scope{Minions} // one setting has all
}

func (r *rule) grant() Grant {
	g := Grant{Rule: r.text, Where: r.where, Held: len(r.accepted) > 0}
	for i := range r.accepted {
		g.Held = g.Held && !r.accepted[i].any
	}
	if r.target != nil {
		g.On = r.target.String()
	}
	return g
}

// Barred returns the functions on the blacklist, which apply to everybody.
func (r *Rules) Barred() []string {
	if r == nil {
		return nil
	}
	var list []string
	for i := range r.blacklist.modules {
		list = append(list, r.blacklist.modules[i].rule)
	}
	return list
}
