from datetime import date

import matplotlib.pyplot as plt

days = [date(2024, 9, day) for day in (1, 2, 3)]
plt.plot(days, [2, 4, 3], label="visits")
plt.xticks(days)
plt.yticks([2, 3, 4])
plt.title("Days")
plt.show()
