"""NEXMark: an auction site's stream of persons, auctions and bids, and queries Q0 to Q8."""
