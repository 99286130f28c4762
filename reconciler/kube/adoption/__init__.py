"""What another controller made for the fleet's services, adopted as it stands."""
