"""What a call cost: tokens now; prices, budgets and the ledger build on them."""
